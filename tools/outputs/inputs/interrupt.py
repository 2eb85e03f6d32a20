"""Begins trainings through the public function and stops each after as many steps as it says."""

import fairtrial


class After:
    """Says that it is time to stop from the n-th time on that it is asked: it is asked once per step."""

    def __init__(self, asked):
        self.left = asked

    def __call__(self):
        self.left -= 1
        return self.left < 0


def begin(recipe, variant, asked, **options):
    try:
        fairtrial.train(recipe, options, study="stopped", variant=variant, should_stop=After(asked))
    except KeyboardInterrupt:
        print(variant, "was interrupted")


begin("classify", "linear", 13, data="digits", model="linear", steps=20, eval_every=4, checkpoint_every=4, log_every=2)
begin(
    "ppo", "cartpole", 3, width=4, envs=2, rollout=8, epochs=2, steps=6, eval_every=2, checkpoint_every=2,
    eval_episodes=2, report_episodes=3, episode_limit=20,
)  # fmt: skip
begin("fake", "fake", 25, steps=40, eval_every=10, checkpoint_every=5, jitter=0.01)
