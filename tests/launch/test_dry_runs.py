"""What would be handed to a cluster is shown without one, and what cannot be meant is refused all the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fairtrial.core.errors import MissingExtra
from fairtrial.launch import engines, slurm
from fairtrial.record.store import Store
from tests.conftest import Answer

Cli = Callable[..., Answer]
STUDY = ("launch", "fake", "--variant", "a:effect=0", "--variant", "b:effect=1", "--base-run-name", "s", "--seeds", "2")
RUNS = ["s/a.seed1072", "s/b.seed1072", "s/a.seed2043", "s/b.seed2043"]


@pytest.fixture(autouse=True)
def _no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise MissingExtra("it is not installed")

    monkeypatch.setattr(engines, "require_packages", missing)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def test_slurms_arrays_are_shown_as_sbatch_takes_them(cli: Cli, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    line = (*STUDY, "--on", "slurm", "--dry-run", "--cpus", "2", "--jobs", "3", "--with", "partition=long")
    told = cli(*line, "--with", "time=2", "--with", "setup=module load cuda")
    assert told.code == 0, told.err
    command, *rest = told.out.splitlines()
    assert command.startswith("sbatch '--job-name=fairtrial s' ") and "--array=0-3%3" in command
    for flag in ("--partition=long", "--time=2", "--cpus-per-task=2", "--signal=TERM@30", "--requeue"):
        assert flag in command.split(), command
    assert rest[0] == "# 0: s/a.seed1072" and rest[-1] == "# before each run: module load cuda"
    assert "Slurm was not asked" in told.err and not store.root.exists()
    monkeypatch.setattr(slurm, "LARGEST_ARRAY", 3)
    many, one = cli(*line, "--format", "json").json["launcher"]["submissions"]
    assert [run for names in (*many["runs"], *one["runs"]) for run in names] == RUNS
    assert "--array=0-2%3" in many["command"] and "--array" not in one["command"]


def test_rays_address_and_what_a_run_needs_are_shown(cli: Cli, store: Store) -> None:
    told = cli(
        *STUDY, "--on", "ray", "--dry-run", "--address", "head:6379", "--cpus", "4", "--gpus", "1", "--jobs", "2"
    )
    assert told.code == 0, told.err
    assert told.out.splitlines() == [
        "On the Ray cluster at head:6379, at most 2 at once, each with 4 cores, 1 GPU:", *RUNS
    ]  # fmt: skip
    assert "No connection was made" in told.err
    document = cli(*STUDY, "--on", "ray", "--dry-run", "--format", "json").json["launcher"]
    assert document["address"] is None and document["resources"] == {"CPU": 1.0} and len(document["runs"]) == 4
    assert not store.root.exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--on", "slurm", "--with", "partitio=x"], "did you mean 'partition'"),
        (["--on", "ray", "--with", "adress=x"], "did you mean 'address'"),
        (["--on", "ray", "--address", "nonsense"], "'nonsense' is not a valid Ray cluster address"),
        (["--address", "head:6379"], "--address needs --on ray"),
        (["--on", "slurm", "--spot"], "--spot needs --on skypilot"),
        (["--with", "partition=x"], "--on local has no settings, but --with set 'partition'"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_a_dry_run_too(cli: Cli, words: list[str], told: str) -> None:
    answer = cli(*STUDY, "--dry-run", *words)
    assert answer.code in (1, 2) and told in answer.err


# Cards on SkyPilot.


def accelerators(told: Answer) -> set[str | None]:
    assert told.code == 0, told.err
    return {each["task"]["resources"].get("accelerators") for each in told.json["launcher"]["tasks"]}


PROGRAM = ("--base-run-name", "s", "--seeds", "2", "--dry-run", "--format", "json")
ITSELF = ("--", "python", "train.py", "{seed}")


@pytest.mark.parametrize("where", [("--skypilot",), ("--on", "skypilot"), ("--skypilot", "--on", "skypilot")])
def test_a_program_has_four_cards_by_default_and_that_is_said(cli: Cli, where: tuple[str, ...]) -> None:
    told = cli("launch", "command", *where, *PROGRAM, *ITSELF)
    assert accelerators(told) == {"L4:4"}
    assert "GPUs: 4 L4 per run by default; --gpus N selects another number, --gpus 0 none" in told.err
    assert told.json["launcher"]["notes"][1].startswith("GPUs: 4 L4")


@pytest.mark.parametrize(
    ("words", "cards"),
    [
        (("--gpus", "8"), "L4:8"),
        (("--gpus", "0"), None),
        (("--with", "accelerators=A100"), "A100:1"),
        (("--gpus", "2", "--with", "accelerators=A100"), "A100:2"),
        (("--with", "accelerators=A100:8"), "A100:8"),
        (("--with", "at_once=2"), "L4:8"),
        (("--with", "instance_type=g6.xlarge"), None),
    ],
)
def test_the_default_gives_way_to_what_was_asked_for(cli: Cli, words: tuple[str, ...], cards: str | None) -> None:
    assert accelerators(cli("launch", "command", "--skypilot", *words, *PROGRAM, *ITSELF)) == {cards}


def test_a_recipe_has_the_cards_that_it_can_use(cli: Cli) -> None:
    told = cli("launch", "ppo", "--architecture", "gru", "--skypilot", *PROGRAM)
    assert accelerators(told) == {None} and "GPUs: none by default, because these runs compute on the CPU." in told.err
    assert accelerators(cli("launch", "ppo", "--architecture", "gru", "--skypilot", "--gpus", "8", *PROGRAM)) == {
        "L4:8"
    }
    assert accelerators(cli("launch", "classify", "--device", "cuda", "--skypilot", *PROGRAM)) == {"L4:1"}


def test_contradicting_places_and_cards_are_refused(cli: Cli) -> None:
    told = cli("launch", "fake", "--skypilot", "--on", "ray", "--dry-run")
    assert told.code == 2 and "--skypilot and --on ray are contradictory" in told.err
    assert cli("launch", "fake", "--skypilot", "--on", "local", "--dry-run").code == 2
    told = cli("launch", "fake", "--skypilot", "--gpus", "0", "--with", "accelerators=L4", "--dry-run")
    assert told.code == 1 and "requests GPUs, but --gpus 0 requests none" in told.err
    assert "--gpus 0 has no effect with --on local" in cli("launch", "fake", "--gpus", "0", "--dry-run").err
    assert "--address needs --on ray" in cli("launch", "fake", "--skypilot", "--address", "a:1", "--dry-run").err


def test_one_architecture_is_one_variant_of_fifteen_seeds_whose_ids_can_be_copied(cli: Cli) -> None:
    words = ("launch", "ppo", "--architecture", "gru", "--curriculum", "widening", "--base-run-name", "control_gru")
    rows = cli(*words, "--dry-run", "--format", "json").json["runs"]
    assert len(rows) == 15 and rows[0]["run"] == "control_gru/default.seed1072"
    lines = cli(*words, "--dry-run").out.splitlines()
    expected = (
        "fairtrial train ppo --curriculum widening --architecture gru --seed 1072 --study control_gru --variant default"
    )
    assert lines[0] == expected and len(lines) == 15
