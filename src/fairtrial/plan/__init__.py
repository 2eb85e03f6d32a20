"""Planning: turns studies, variants and seeds into fully resolved cells."""
