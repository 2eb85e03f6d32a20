"""Can others check it? Registrations, their ledger, and what was not done as registered."""
