"""CartPole by Stable-Baselines3, with the options that `fairtrial train ppo` has by default.

`python -m benchmarks.peer_ppo --steps N --seeds 1 2 … [--episodes E] [--processes P]` trains one run per seed and
prints, as JSON, what training took in all and the mean return of each run over E held-out episodes. Same networks,
optimizer, number of environments, rollouts, epochs, batches and rates; nothing is recorded.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from fairtrial.recipes.ppo import Options

HELD_OUT = 1_000_000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", required=True)
    parser.add_argument("--episodes", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    asked = parser.parse_args()
    if asked.processes > 1:
        found = _side_by_side(asked.steps, asked.seeds, asked.episodes, asked.processes)
    else:
        found = train_all(Options(steps=asked.steps), asked.seeds, asked.episodes)
    print(json.dumps(found))


def _side_by_side(steps: int, seeds: Sequence[int], episodes: int, processes: int) -> dict[str, Any]:
    """Each process trains its share of the seeds."""
    argv = [sys.executable, "-m", "benchmarks.peer_ppo", "--steps", str(steps), "--episodes", str(episodes), "--seeds"]
    shares = [[str(seed) for seed in seeds[number::processes]] for number in range(processes)]
    started = [subprocess.Popen([*argv, *share], stdout=subprocess.PIPE, text=True) for share in shares if share]
    told = [json.loads(each.communicate()[0]) for each in started]
    return {
        "training_s": max(each["training_s"] for each in told),
        "cpu_s": sum(each["cpu_s"] for each in told),
        "returns": {seed: value for each in told for seed, value in each["returns"].items()},
    }


def train_all(options: Options, seeds: Sequence[int], episodes: int) -> dict[str, Any]:
    import torch

    torch.set_num_threads(1)
    wall, cpu, returns = 0.0, 0.0, {}
    for seed in seeds:
        model = make_peer(options, seed)
        start, used = time.perf_counter(), time.process_time()
        model.learn(options.steps * options.rollout * options.envs)
        wall, cpu = wall + time.perf_counter() - start, cpu + time.process_time() - used
        returns[str(seed)] = _play(model, options, seed, episodes) if episodes else None
    return {"training_s": wall, "cpu_s": cpu, "returns": returns}


def make_peer(options: Options, seed: int) -> Any:
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    return PPO(
        "MlpPolicy", make_vec_env(options.env, options.envs, seed=seed), seed=seed, device="cpu",
        n_steps=options.rollout, batch_size=options.batch_size, n_epochs=options.epochs, gamma=options.gamma,
        gae_lambda=options.gae_lambda, clip_range=options.clip, ent_coef=options.entropy_weight,
        vf_coef=options.value_weight, max_grad_norm=options.max_grad_norm,
        learning_rate=lambda left: options.learning_rate * left,
    )  # fmt: skip


def _play(model: Any, options: Options, seed: int, episodes: int) -> float:
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy

    held_out = make_vec_env(options.env, options.envs, seed=HELD_OUT + seed)
    told: Any = evaluate_policy(model, held_out, n_eval_episodes=episodes, deterministic=True)
    return float(told[0])


if __name__ == "__main__":
    main()
