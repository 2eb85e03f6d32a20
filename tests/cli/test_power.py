"""power from files of results, and what it says about a pilot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import fairtrial
from fairtrial.record.store import Store
from fairtrial.stats.power import Design, pooled_freedom, seeds_for
from tests.api.comparing.test_analyze import fill
from tests.conftest import Answer

Cli = Callable[..., Answer]
BASE, NEW = (0.90, 0.91, 0.88, 0.90, 0.92), (0.91, 0.93, 0.88, 0.92, 0.92)


def table(path: Path, *, seeds: bool = True, **arms: tuple[float, ...]) -> str:
    lines = [
        ",".join([name, *([str(seed)] if seeds else []), repr(value)])
        for name, values in arms.items() for seed, value in enumerate(values)
    ]  # fmt: skip
    head = "variant,seed,acc" if seeds else "variant,acc"
    path.write_text("\n".join([head, *lines]) + "\n")
    return str(path)


def test_a_file_of_one_variant_is_planned_as_unpaired(tmp_path: Path, cli: Cli) -> None:
    path = table(tmp_path / "r.csv", base=BASE)
    found = cli("power", "--sesoi", "0.01", "--from", path, "--format", "json").json
    sd = float(np.std(BASE, ddof=1))
    assert found["design"] == "unpaired" and found["pilot_n"] == 5 and found["sd"] == pytest.approx(sd)
    assert found["seeds"] == seeds_for(0.01 / sd, Design(False), 4)


def test_a_correlation_makes_pairs_of_a_file_of_one_variant(tmp_path: Path, cli: Cli) -> None:
    path = table(tmp_path / "r.csv", base=BASE)
    words = ("power", "--sesoi", "0.01", "--from", path, "--correlation", "0.5")
    found = cli(*words, "--format", "json").json
    assert found["design"] == "paired" and found["sd"] == pytest.approx(float(np.std(BASE, ddof=1)))
    assert "a pilot of 5 runs per variant" in cli(*words).out


def test_a_file_of_two_variants_with_shared_seeds_is_planned_as_pairs(tmp_path: Path, cli: Cli) -> None:
    path = table(tmp_path / "r.csv", base=BASE, new=NEW)
    found = cli("power", "--sesoi", "0.01", "--from", path, "--format", "json").json
    sd = float(np.std(np.subtract(NEW, BASE), ddof=1))
    assert found["design"] == "paired" and found["sd"] == pytest.approx(sd) and found["freedom"] == 4
    assert found["seeds"] == seeds_for(0.01 / sd, Design(True), 4)


def test_runs_without_seeds_are_not_pairs(tmp_path: Path, cli: Cli) -> None:
    path = table(tmp_path / "r.csv", seeds=False, base=BASE, new=NEW)
    found = cli("power", "--sesoi", "0.01", "--from", path, "--format", "json").json
    variances = [float(np.var(sample, ddof=1)) for sample in (BASE, NEW)]
    assert found["design"] == "unpaired" and found["freedom"] == pytest.approx(pooled_freedom(variances, [4, 4]))


def test_only_shared_seeds_count_as_pairs(tmp_path: Path, cli: Cli) -> None:
    path = table(tmp_path / "r.csv", base=BASE, new=NEW[:3])
    assert cli("power", "--sesoi", "0.01", "--from", path, "--format", "json").json["freedom"] == 2


def test_variants_of_a_file_are_chosen_by_name(tmp_path: Path, cli: Cli) -> None:
    path = table(tmp_path / "r.csv", base=BASE, new=NEW, third=BASE)
    refused = cli("power", "--sesoi", "0.01", "--from", path)
    assert refused.code == 1 and "3 variants" in refused.err and "--variant" in refused.err
    chosen = ("power", "--sesoi", "0.01", "--from", path, "--variant", "base")
    assert cli(*chosen, "--format", "json").json["design"] == "unpaired"
    assert cli(*chosen, "--variant", "new", "--format", "json").json["design"] == "paired"
    unknown = cli(*chosen[:-1], "bass")
    assert unknown.code == 1 and "did you mean 'base'" in unknown.err


def test_several_files_are_one_pilot(tmp_path: Path, cli: Cli) -> None:
    first, second = table(tmp_path / "1.csv", base=BASE), table(tmp_path / "2.csv", new=NEW)
    found = cli("power", "--sesoi", "0.01", "--from", first, "--from", second, "--format", "json").json
    assert found["design"] == "paired"


def test_columns_of_a_file_can_be_named(tmp_path: Path, cli: Cli) -> None:
    rows = [f"{arm};{seed};{value}" for arm, values in (("a", BASE), ("b", NEW)) for seed, value in enumerate(values)]
    (tmp_path / "r.csv").write_text("\n".join(["algo;k;score", *rows]).replace(";", ",") + "\n")
    named = ("--variant-column", "algo", "--seed-column", "k", "--metric", "score")
    found = cli("power", "--sesoi", "0.01", "--from", str(tmp_path / "r.csv"), *named, "--format", "json").json
    assert found["design"] == "paired" and found["pilot_n"] == 5


def test_a_file_of_one_task_is_a_pilot_and_one_of_two_is_not(tmp_path: Path, cli: Cli) -> None:
    rows = [f"{task},{seed},{value}" for task in ("x", "y") for seed, value in enumerate(BASE)]
    (tmp_path / "1.csv").write_text("\n".join(["task,seed,acc", *rows[:5]]) + "\n")
    (tmp_path / "2.csv").write_text("\n".join(["task,seed,acc", *rows]) + "\n")
    assert cli("power", "--sesoi", "0.01", "--from", str(tmp_path / "1.csv")).code == 0
    assert cli("variance", "--from", str(tmp_path / "1.csv"), "--format", "json").json["n"] == 5
    refused = cli("power", "--sesoi", "0.01", "--from", str(tmp_path / "2.csv"))
    assert refused.code == 1 and "2 tasks" in refused.err


def test_runs_and_a_file_of_the_same_numbers_give_the_same_plan(store: Store, cli: Cli, tmp_path: Path) -> None:
    fill(store, base={}, new={"effect": 0.2})
    assert cli("runs", "export", "s/*", "--output", "s.csv").code == 0
    runs = cli("power", "--sesoi", "0.02", "--pilot", "s", "--format", "json").json
    file = cli("power", "--sesoi", "0.02", "--from", "s.csv", "--metric", "report_accuracy", "--format", "json").json
    assert {**runs, "hours_per_run": None, "hours": None} == {**file, "hours_per_run": None, "hours": None}


def test_the_effect_of_a_pilot_does_not_change_the_plan(tmp_path: Path) -> None:
    near, far = (table(tmp_path / f"{shift}.csv", base=BASE, new=tuple(x + shift for x in NEW)) for shift in (0.0, 4.0))
    plans = [fairtrial.power(sesoi=0.01, source=path) for path in (near, far)]
    assert plans[0].seeds == plans[1].seeds and plans[0].sd == pytest.approx(plans[1].sd)


def test_the_text_says_what_the_plan_makes_of_the_pilot(tmp_path: Path, cli: Cli) -> None:
    path = table(tmp_path / "r.csv", base=BASE, new=NEW)
    text = " ".join(
        cli("power", "--sesoi", "0.01", "--from", path, "--hours-per-run", "0.2", "--price-per-hour", "1.3").out.split()
    )
    assert (
        "80 % power on average over the uncertainty of the true sd" in text and "The pilot's effect is not used" in text
    )
    assert "$7.80" in text and "6.00 h" in text
    bound = " ".join(cli("power", "--sesoi", "0.01", "--from", path, "--assurance", "0.8").out.split())
    assert "with 80 % assurance; the plan uses that bound" in bound
