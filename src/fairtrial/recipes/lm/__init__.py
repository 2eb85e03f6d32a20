"""A language model that plays: games, sampling, rollouts and learning from groups of them."""
