"""The PPO implementation: vectorized environments, policies and training.

`physics` has the equations of the classic tasks, `vector_env` the environments of one or many runs, and
`gymnasium_envs` those of Gymnasium and the Arcade Learning Environment. `actions` converts network outputs to actions,
and `experience` converts rewards to advantages. `run` is the training loop, `perceptron` the policy that can be
stacked, and `modules` the policies that cannot.
"""
