"""Jobs: the processes that make runs, here and on other machines."""
