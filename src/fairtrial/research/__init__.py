"""Can others check it? Artifacts, registrations, bundles and their verification."""
