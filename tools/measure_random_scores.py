"""Returns of a random policy on the classic tasks, which recipes/_references.py has: run it to measure them anew."""

from __future__ import annotations

import gymnasium
import numpy

EPISODES = 1000
SEED = 20261116
TASKS = ("CartPole-v1", "Acrobot-v1", "Pendulum-v1", "MountainCar-v0", "MountainCarContinuous-v0")


def returns(task: str, episodes: int = EPISODES) -> numpy.ndarray:
    env = gymnasium.make(task)
    env.action_space.seed(SEED)
    found = []
    for number in range(episodes):
        env.reset(seed=SEED + number)
        total, over = 0.0, False
        while not over:
            _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            total += float(reward)
            over = terminated or truncated
        found.append(total)
    return numpy.array(found)


def main() -> None:
    for task in TASKS:
        found = returns(task)
        error = found.std(ddof=1) / numpy.sqrt(len(found))
        print(f"{task}: {found.mean():.4g} ± {error:.2g} (standard error), {len(found)} episodes")


if __name__ == "__main__":
    main()
