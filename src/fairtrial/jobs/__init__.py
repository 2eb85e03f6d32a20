"""Job processes, which execute runs on this machine and on others."""
