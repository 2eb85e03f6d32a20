"""Launchers, which run cells somewhere, and the schedule, which decides which cells run and when."""
