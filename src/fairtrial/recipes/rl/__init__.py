"""Reinforcement learning: environments in rows, policies, and what is learnt from what they met.

`physics` has the classic tasks as equations over arrays, `rows` the environments of one or many runs, `foreign` those
of gymnasium and of the Arcade Learning Environment. `actions` knows how numbers from a network become actions,
`experience` turns rewards into advantages. `run` is the training itself; `perceptron` is the policy that is stacked,
`modules` those that are trained by themselves.
"""
