"""Evidence that others can check: artifacts, registrations and their ledger, bundles, and their verification."""
