"""`fairtrial.compare` and `fairtrial.analyze` take what people have: scores, mappings, frames, runs, variants."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import fairtrial
from fairtrial.core.errors import UserError
from fairtrial.plan.study import Study
from fairtrial.record.store import Store

BASE = [0.81, 0.80, 0.83, 0.79]
NEW = [0.85, 0.83, 0.88, 0.84]
SEEDS = [11, 12, 13, 14]
EXPECTED = fairtrial.compare_samples(BASE, NEW, paired=True)


def long_rows(variant: str = "algo", score: str = "score") -> list[dict[str, Any]]:
    return [
        {variant: name, "seed": seed, score: value}
        for name, values in (("base", BASE), ("new", NEW))
        for seed, value in zip(SEEDS, values, strict=True)
    ]


def same(comparison: fairtrial.Comparison) -> bool:
    return (
        comparison.pairing == "paired"
        and comparison.effect.value == pytest.approx(EXPECTED.effect.value)
        and (comparison.p_value == pytest.approx(EXPECTED.p_value) and comparison.verdict is EXPECTED.verdict)
    )


@pytest.mark.parametrize("kind", [list, tuple, np.array, pd.Series, lambda v: np.array(v, dtype=np.float64).tolist()])
def test_scores_are_paired_by_position_on_request(kind: Any) -> None:
    assert same(fairtrial.compare(kind(BASE), kind(NEW), paired=True))
    assert fairtrial.compare(kind(BASE), kind(NEW)).pairing == "unpaired"


def test_scores_with_seeds_are_paired_by_seed_whatever_their_order() -> None:
    base, new = dict(zip(SEEDS, BASE, strict=True)), dict(zip(SEEDS[::-1], NEW[::-1], strict=True))
    assert same(fairtrial.compare(base, new))
    series = pd.Series(base, name="ppo"), pd.Series(new, name="ppo with entropy")
    comparison = fairtrial.compare(*series)
    assert same(comparison) and (comparison.control, comparison.candidate) == ("ppo", "ppo with entropy")
    assert fairtrial.compare(base, new, paired=False).pairing == "unpaired"


def test_seeds_that_differ_are_not_paired_silently() -> None:
    with pytest.raises(UserError, match="the seeds differ: only control has 1; only candidate has 3") as refused:
        fairtrial.compare({1: 0.5, 2: 0.4}, {2: 0.5, 3: 0.4})
    assert "paired=False" in str(refused.value)
    with pytest.raises(UserError, match="only one of the two has seeds"):
        fairtrial.compare({1: 0.5, 2: 0.4}, [0.5, 0.6], paired=True)


def test_the_name_of_the_metric_decides_which_way_is_better() -> None:
    assert fairtrial.compare(BASE, NEW, paired=True).verdict == "better"
    assert fairtrial.compare(BASE, NEW, paired=True, metric="eval_loss").verdict == "worse"
    assert fairtrial.compare(BASE, NEW, paired=True, metric="eval_loss", direction="max").verdict == "better"
    with pytest.raises(UserError, match="oddity"):
        fairtrial.compare(BASE, NEW, paired=True, metric="oddity")


def test_a_lost_run_is_counted() -> None:
    comparison = fairtrial.compare([*BASE, 0.8], [*NEW, None], paired=True)
    assert comparison.reliability is not None and comparison.reliability.lost_candidate == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "there is nothing to compare"),
        (([0.1, 0.2],), "there is no candidate to compare with"),
        (([0.1, 0.2], 3), "int cannot be compared"),
        (([0.1, "x"], [0.1, 0.2]), "the scores of control must be numbers, not 'x'"),
    ],
)
def test_what_cannot_be_compared_is_a_sentence(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        fairtrial.compare(*arguments)


class ArrowOnly:
    """A frame of a package that this program does not know, such as polars: it offers an Arrow stream."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self.columns = table.column_names

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.table.__arrow_c_stream__(requested_schema)


FRAMES: dict[str, Any] = {
    "pandas": pd.DataFrame,
    "pandas with an index": lambda rows: pd.DataFrame(rows).set_index(["algo", "seed"]),
    "arrow": pa.Table.from_pylist,
    "an arrow stream": lambda rows: ArrowOnly(pa.Table.from_pylist(rows)),
    "dictionaries": list,
    "columns": lambda rows: {name: [row[name] for row in rows] for name in rows[0]},
}


@pytest.mark.parametrize("kind", FRAMES)
def test_a_frame_is_analyzed(kind: str) -> None:
    frame = FRAMES[kind](long_rows())
    analysis = fairtrial.analyze(frame, metric="score", direction="max")
    assert same(analysis.comparisons[0]) and analysis.control == "base"
    assert same(fairtrial.compare(frame, metric="score", direction="max"))


def test_columns_are_named_by_keyword() -> None:
    rows = [{"cfg": r["algo"], "trial": r["seed"], "lr": 0.1, "loss": r["score"]} for r in long_rows()]
    analysis = fairtrial.analyze(pd.DataFrame(rows), metric="loss", variant="cfg", seed="trial", control="new")
    assert analysis.comparisons[0].verdict == "better" and analysis.comparisons[0].pairing == "paired"
    columns = fairtrial.Columns(variant="cfg", seed="trial")
    nested = fairtrial.analyze(rows, columns=columns, question=fairtrial.Question(metrics=["loss"]), control="new")
    assert nested.comparisons[0].effect == analysis.comparisons[0].effect


def test_the_curves_of_a_frame_are_summarized() -> None:
    rows = [{**row, "step": step, "score": row["score"] * step} for row in long_rows() for step in (1, 2, 3)]
    last = fairtrial.analyze(rows, metric="score", direction="max", summary="last")
    assert last.comparisons[0].effect.value == pytest.approx(3 * (EXPECTED.effect.value or 0))
    assert fairtrial.analyze(rows, metric="score", direction="max", summary="auc").summary["type"] == "auc"


def test_two_frames_are_two_arms_paired_by_seed() -> None:
    base, new = ([row for row in long_rows() if row["algo"] == name] for name in ("base", "new"))
    comparison = fairtrial.compare(pd.DataFrame(base), pd.DataFrame(new[::-1]), metric="score", direction="max")
    assert same(comparison) and comparison.candidate == "candidate"
    named = fairtrial.compare(base, new, metric="score", direction="max", names=("old", "fresh"))
    assert str(named).startswith("fresh is better than old")


def test_an_ambiguous_frame_is_not_guessed() -> None:
    two = [{**row, "method": "x"} for row in long_rows()]
    with pytest.raises(UserError, match="both 'algo' and 'method' may be the variant column; choose one with variant="):
        fairtrial.analyze(two, metric="score")
    more = [{**row, "reward": 1.0} for row in long_rows()]
    with pytest.raises(UserError, match="2 possible metrics: score, reward") as refused:
        fairtrial.analyze(more)
    assert "metric=" in str(refused.value) and "--" not in str(refused.value)
    none = [{"cfg": row["algo"], "seed": row["seed"] + (row["algo"] == "new"), "score": 1.0} for row in long_rows()[:4]]
    with pytest.raises(UserError, match="no variant column") as refused:
        fairtrial.analyze(none, metric="score", direction="max")
    assert "variant=" in str(refused.value) and "--" not in str(refused.value)


def test_settings_are_checked_all_at_once() -> None:
    with pytest.raises(UserError) as refused:
        fairtrial.analyze(long_rows(), metrc="score", sesio=0.1)  # type: ignore[call-arg]
    assert "did you mean 'metric'" in refused.value.message and "did you mean 'sesoi'" in refused.value.problems[0]
    with pytest.raises(UserError, match="alpha is given twice"):
        fairtrial.analyze(long_rows(), metric="score", alpha=0.1, question=fairtrial.Question(alpha=0.01))


def test_analyzing_a_frame_imports_no_frame_library() -> None:
    code = (
        "import sys, fairtrial\n"
        "rows = [dict(algo=a, seed=s, score=s + (a == 'b') * s) for a in 'ab' for s in (1, 2, 3)]\n"
        "assert fairtrial.analyze(rows, metric='score', direction='max').comparisons\n"
        "assert not {'pandas', 'polars', 'torch', 'altair'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def recorded(store: Store) -> None:
    for name, values in (("base", BASE), ("new", NEW)):
        for seed, value in zip(SEEDS, values, strict=True):
            with fairtrial.run(
                study="demo", variant=name, seed=seed, store=store.root, metric="acc", direction="max"
            ) as run:
                run.log(1, acc=value)


def test_recorded_runs_are_compared(store: Store) -> None:
    recorded(store)
    assert same(fairtrial.compare("demo:base", "demo:new", store=store.root))
    assert same(fairtrial.compare("demo", store=store.root))
    assert same(fairtrial.compare(Study(study="demo", recipe="fake", variants={"base": {}}), store=store.root))
    rows = [fairtrial.list_runs(store=store.root, variant=name) for name in ("base", "new")]
    assert same(fairtrial.compare(*rows, store=store.root))
    runs = [[store.find(f"demo/{row['run']}") for row in each] for each in rows]
    assert same(fairtrial.compare(*runs, store=store.root))
    with pytest.raises(UserError, match="variant names a column"):
        fairtrial.analyze("demo", variant="algo", store=store.root)


def test_the_former_meaning_of_compare_still_works_and_warns(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr("fairtrial.api.lab.compare.compare_strategies", lambda **given: asked.append(given))
    for call in (
        lambda: fairtrial.compare(strategies=["kd"]),
        lambda: fairtrial.compare(["kd", "mse"]),
        lambda: fairtrial.compare(["kd"], options={"steps": 1}),
    ):
        with pytest.warns(DeprecationWarning, match="compare_strategies"):
            call()
    assert asked == [
        {"strategies": ["kd"]},
        {"strategies": ["kd", "mse"]},
        {"strategies": ["kd"], "options": {"steps": 1}},
    ]
