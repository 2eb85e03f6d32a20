"""rliable, asked in an environment of its own: it needs older packages than ours."""
