"""The verbs that measure speed and check the setup: bench, profile, doctor, sync."""
