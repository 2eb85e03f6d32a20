"""The GRPO implementation: games, sampling, rollouts and training of a language model."""
