"""evaluate: checkpoints again, on what chose nothing, and how far choosing flattered them."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fairtrial import evaluate, train
from fairtrial.core.scores import confidence_bound
from fairtrial.record.series import read_lines
from fairtrial.record.store import Store
from tests.conftest import Answer
from tests.own_recipe import PLAIN

Cli = Callable[..., Answer]

LUCK = """
METRIC = Metric("return_mean", "max")

class Options(LoopOptions):
    report_episodes: int = option(50, "Episodes.", role=Role.EVALUATION)
    knows: bool = option(True, "Whether references are known.", role=Role.EVALUATION)

def references(options):
    return References(-10.0, 10.0, basis="made up") if options.knows else None

class Own(Plain):
    taken, episode_returns = 0, None

    def step(self, step, watch):
        self.taken = step
        return {"loss": 1.0}

    def evaluate_episodes(self, split, episodes, part):
        return self.streams.numpy(split, "episodes", part, self.taken if split == "eval" else 0).normal(0, 1, episodes).tolist()

    def evaluate(self, split):
        self.episode_returns = self.evaluate_episodes(split, 8 if split == "eval" else self.options.report_episodes, 0)
        return {"return_mean": sum(self.episode_returns) / len(self.episode_returns)}

    def state(self):
        return {"taken": self.taken}

    def load_state(self, state):
        self.taken = state["taken"]
"""


@pytest.fixture
def luck(tmp_path: Path) -> str:
    path = tmp_path / "luck.py"
    path.write_text(PLAIN + LUCK)
    return str(path)


@pytest.mark.slow
def test_choosing_among_lucky_checkpoints_flatters_them_and_fresh_episodes_show_it(luck: str, store: Store) -> None:
    runs = [
        train(luck, {"steps": 20, "eval_every": 1}, seed=seed, study="s", variant="v", store=store.root).run
        for seed in range(1, 13)
    ]
    found = evaluate([run.name for run in runs], confirm=True, episodes=200, store=store.root)
    assert found.gap is not None and found.gap.n == 12 and found.gap.low is not None and found.gap.low > 0.3
    assert all(each.fresh and each.episodes == 200 for each in found.runs)
    means = [each.metrics["eval_return_mean"] for each in found.runs]
    assert abs(np.mean(means)) < 4 / math.sqrt(12 * 200), "what is found on fresh episodes is not flattered"


def test_fresh_episodes_are_others_than_those_reported(luck: str, store: Store) -> None:
    run = train(luck, {"steps": 4}, store=store.root).run
    again, fresh = (evaluate([run.name], confirm=confirm, store=store.root).runs[0] for confirm in (False, True))
    assert again.metrics["eval_return_mean"] == pytest.approx(run.final["report_best_return_mean"])
    assert fresh.metrics["eval_return_mean"] != again.metrics["eval_return_mean"]
    rows = [row for row in read_lines(run.paths.events).rows if row["event"] == "evaluation"]
    assert [row["fresh"] for row in rows] == [False, True]


def test_normalized_scores_have_the_interval_of_the_raw_ones(luck: str, store: Store) -> None:
    run = train(luck, {"steps": 4, "benchmark": {"scale": 1}}, store=store.root).run
    found = evaluate([run.name], store=store.root).runs[0]
    raw, score = found.intervals["eval_return_mean"], found.intervals["eval_human_normalized_score"]
    assert raw.low is not None and score.low == pytest.approx((raw.low + 10) / 20)
    assert found.metrics["eval_human_normalized_score"] == pytest.approx((found.metrics["eval_return_mean"] + 10) / 20)
    plain = train(luck, {"steps": 4, "knows": False}, store=store.root).run
    assert list(evaluate([plain.name], store=store.root).runs[0].metrics) == ["eval_return_mean"]


def test_every_episode_is_written_down(luck: str, store: Store) -> None:
    run = train(luck, {"steps": 4, "eval_every": 2}, store=store.root).run
    rows = [row for row in read_lines(run.paths.events).rows if row["event"] == "episodes"]
    assert [(row["step"], row["split"], row["of"], len(row["returns"])) for row in rows][:3] == [
        (2, "eval", "last", 8), (4, "eval", "last", 8), (4, "report", "last", 50),
    ]  # fmt: skip
    assert not set(rows[0]["returns"]) & set(rows[2]["returns"]), "selection and report share no episode"


def test_a_lower_bound_can_select(luck: str, store: Store) -> None:
    run = train(luck, {"steps": 6, "eval_every": 1, "best_rule": "lcb"}, store=store.root).run
    rows = {row["step"]: row["returns"] for row in read_lines(run.paths.events).rows
            if row["event"] == "episodes" and row["split"] == "eval"}  # fmt: skip
    bounds = {step: confidence_bound(returns, "max") for step, returns in rows.items()}
    assert run.metadata["best_metric_name"] == "eval_return_mean_bound"
    assert run.metadata["best_checkpoint_step"] == max(bounds, key=lambda step: bounds[step])
    assert all(
        bounds[step] < float(np.mean(returns)) < confidence_bound(returns, "min") for step, returns in rows.items()
    )


def test_a_bound_over_one_episode_is_refused_and_not_a_divergence(cli: Cli, with_data: Store) -> None:
    answer = cli("train", "ppo", "--steps", "1", "--best-rule", "lcb", "--eval-episodes", "1", "--report-episodes", "1")
    assert answer.code == 4 and "failed: best_rule: a bound needs at least two episodes" in answer.err
    plain = cli(
        "train", "ppo", "--steps", "1", "--eval-episodes", "1", "--report-episodes", "1", "--format", "json"
    ).json
    assert "report_return_mean" in plain["final"] and "report_return_sd" not in plain["final"], "one has no spread"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("s/v.seed1", "--episodes", "0"), "episodes must be at least 1"),
        (("s/v.seed1", "--checkpoint", "step-3"), "has no checkpoint 'step-3'; it has: best, last, step-20"),
        (("s/v.seed1", "--checkpoint", "last", "--confirm"), "only the best checkpoint was selected"),
        (("s/v.seed1", "--episodes", "5"), "recipe 'fake' has no episodes"),
        (("s/v.seed1", "s/nobody"), "no run named 's/nobody'"),
    ],
)
def test_what_cannot_be_evaluated_is_one_clear_sentence(
    cli: Cli, store: Store, words: tuple[str, ...], told: str
) -> None:
    train("fake", {"steps": 20}, seed=1, study="s", variant="v", store=store.root)
    answer = cli("evaluate", *words)
    assert answer.code == 1 and told in answer.err


def test_the_document_is_the_documented_one(cli: Cli, luck: str, store: Store) -> None:
    train(luck, {"steps": 6, "eval_every": 1, "keep_best": 2}, seed=1, study="s", variant="v", store=store.root)
    found = cli("evaluate", "s/v.seed1", "--format", "json").json
    assert found["run"] == "s/v.seed1" and found["checkpoint"] == "best" and "eval_return_mean" in found["metrics"]
    text = cli("evaluate", "s/v.seed1", "--checkpoint", "best-2", "--confirm").err
    assert "only the best checkpoint" in text
    shown = cli("evaluate", "s/v.seed1", "--checkpoint", "best-2", "--episodes", "30").out
    assert "best-2" in shown and "30 episodes" in shown and "[" in shown
    assert "re-evaluated" in cli("runs", "show", "s/v.seed1").out


def test_references_that_are_missing_are_asked_for(cli: Cli, store: Store) -> None:
    answer = cli("train", "fake", "--best-metric", "eval_human_normalized_score")
    assert (
        answer.code == 1 and "needs reference scores for normalization" in answer.err and "random_score" in answer.err
    )
    fine = cli("train", "fake", "--best-metric", "eval_human_normalized_score", "--benchmark", "random_score=0",
               "--benchmark", "human_score=1", "--steps", "30")  # fmt: skip
    assert fine.code == 0 and "eval_human_normalized_score" in fine.out
    assert "reports no episode returns to compute a bound from" in cli("train", "fake", "--best-rule", "lcb").err


def test_supervised_runs_are_confirmed_on_fresh_data(cli: Cli, with_data: Store) -> None:
    train("classify", {"labels": 200, "steps": 20, "eval_every": 5}, study="s", variant="v", store=with_data.root)
    found = cli("evaluate", "s/v.seed1072", "--confirm", "--format", "json").json
    run = with_data.run("s", "v.seed1072")
    assert run is not None and found["metrics"]["eval_accuracy"] != run.final["report_best_accuracy"]
    assert found["selected"] == run.metadata["best_metric_value"] and found["gap"] == pytest.approx(
        found["selected"] - found["metrics"]["eval_accuracy"]
    )


@pytest.mark.slow
def test_a_game_is_scored_on_the_scale_of_random_and_human_players_from_its_best_checkpoint(
    cli: Cli, store: Store
) -> None:
    pytest.importorskip("ale_py")
    train(
        "ppo",
        {
            "env": "ALE/Breakout-v5", "steps": 4, "envs": 2, "rollout": 16, "epochs": 1, "width": 16, "eval_every": 2,
            "eval_episodes": 1, "report_episodes": 1, "episode_limit": 60, "checkpoint_every": 2,
        },
        seed=1, study="s", variant="v", store=store.root,
    )  # fmt: skip
    told = cli("evaluate", "s/v.seed1", "--checkpoint", "best", "--episodes", "2", "--format", "json").json
    assert told["checkpoint"] == "best"
    raw, (random, human) = told["metrics"]["eval_return_mean"], (1.7, 30.5)
    assert told["metrics"]["eval_human_normalized_score"] == pytest.approx((raw - random) / (human - random) * 100)


def test_runs_are_evaluated_by_a_pattern(luck: str, store: Store) -> None:
    for seed in (1, 2):
        train(luck, {"steps": 3, "eval_every": 1}, seed=seed, study="s", variant="v", store=store.root)
    assert len(evaluate(["s/*", "s/v.seed1"], store=store.root).runs) == 2
