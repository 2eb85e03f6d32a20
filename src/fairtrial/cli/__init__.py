"""The command line: one file per command, each a thin caller of `api`."""
