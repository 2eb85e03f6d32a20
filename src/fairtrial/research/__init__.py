"""Can others check it? Artifacts, registrations and their ledger, bundles, and what verifies them."""
