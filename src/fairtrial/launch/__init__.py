"""Where? Launchers take cells and run them; the schedule decides which and when."""
