"""Other people's readers of an RO-Crate, in an environment of their own: .venv-crate, made by `make evidence`."""
