"""What every command shows on a terminal of 80 and of 120 columns, with variants whose names have forty characters.

Each command writes to a real pseudo-terminal. Every screen must obey the rules below. Screens that do not depend on the
machine are also kept in `screens/`, so that a review shows every change of what people see. To write them again:

    FAIRTRIAL_WRITE_SCREENS=1 python -m pytest tests/cli/test_screens.py -n 0
"""

from __future__ import annotations

import fcntl
import importlib
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
from rich.cells import cell_len

from fairtrial.cli.app import COMMANDS, run
from fairtrial.record.store import Store
from tests.conftest import do_not_wait_for_the_disk, link_data
from tests.warm_job_server import WarmJobServers

SCREENS = Path(__file__).parent / "screens"
WIDTHS = (80, 120)
CONTROL = "control-with-a-name-of-forty-characters1"
CANDIDATE = "candidate-with-a-name-of-forty-character"
assert len(CONTROL) == len(CANDIDATE) == 40
RUN = f"study/{CONTROL}.seed1072"

# Rules


COPIED = re.compile(r"fairtrial [a-z]|pip install |(^|[ :])\.?/\S+( \S+)?$|^https?://")
"""Lines that may be wider than the terminal, because a line break inside a command or a path could not be copied."""
BOX = re.compile("[\u2500-\u257f]")
CUT = re.compile(r"[\w.)\]]…|…[\w.([]")
PLURAL = re.compile(
    r"\(s\)|(?<![\d.,])1 (runs|seeds|pairs|steps|values|files|events|points|tasks|configurations|studies)\b"
)


def problems_of(screen: str, width: int) -> list[str]:
    """Return every line of a screen that breaks a rule, with the rule."""
    problems = []
    for line in screen.splitlines():
        if cell_len(line) > width and not COPIED.search(line):
            problems.append(f"wider than {width} columns: {line}")
        problems += [
            f"{rule}: {line}"
            for rule, pattern in (("box", BOX), ("cut", CUT), ("plural", PLURAL))
            if pattern.search(line)
        ]
    return problems


def missing_in(screen: str, names: Sequence[str]) -> list[str]:
    """Return what a comparison must name and does not: its arms and which direction is better."""
    return [name for name in (*names, "is better") if name not in screen]


@pytest.mark.parametrize(
    ("screen", "rule"),
    [
        ("x" * 81, "wider"),
        ("数" * 41, "wider"),
        ("0.46…  +0.00…", "cut"),
        ("study/control-with-a-na….seed1072", "cut"),
        ("80/1… steps", "cut"),
        ("┃ variant ┃", "box"),
        ("0 run(s) of base", "plural"),
        ("1 seeds per variant", "plural"),
    ],
)
def test_the_rules_find_a_bad_screen(screen: str, rule: str) -> None:
    assert [problem.partition(":")[0].partition(" ")[0] for problem in problems_of(screen, 80)] == [rule]


def test_the_rules_accept_a_good_screen_and_lines_to_copy() -> None:
    assert not problems_of("11 seeds, 21 runs\n  fairtrial analyze " + "x" * 90 + "\n  path  /" + "x" * 90, 80)


def test_a_comparison_must_name_its_arms_and_its_direction() -> None:
    assert missing_in("a − b: +0.1", ["a", "c"]) == ["c", "is better"]


# Screens


@dataclass(frozen=True)
class Shown:
    """A command whose screen is looked at."""

    name: str
    words: Sequence[str]
    compares: Sequence[str] = ()
    codes: Sequence[int] = (0,)
    kept: bool = True
    """Whether the screen is the same on every machine, and so kept in a file."""


def on_screen(name: str, line: str, **settings: object) -> Shown:
    words = line.format(control=CONTROL, candidate=CANDIDATE, run=RUN, width="{width}").split(" ")
    return Shown(name, [word.replace("\N{NO-BREAK SPACE}", " ") for word in words], **settings)  # type: ignore[arg-type]


ARMS = (CONTROL, CANDIDATE)
DISTILL = (
    "--runs 2 --steps 4 --eval-every 4 --checkpoint-every 4 --labels 100 --teacher-steps 4 --teacher-width 4 "
    "--student-width 4"
)
LAUNCH = (
    f"fake --steps 4 --seeds 3 --jobs 1 --base-run-name study --variant {CONTROL}: --variant {CANDIDATE}:effect=0.1"
)
FAILING = f"fake --steps 4 --fail-at 2 --seeds 3 --base-run-name bad --variant {CONTROL}:"
SHOWN = [
    on_screen("help", "--help", kept=False),  # docs/cli.md has it
    on_screen("init", "init --output study-{width}.yaml"),
    on_screen("train", "train fake --steps 4"),
    on_screen("train-benchmark", "train fake --steps 4 --benchmark random_score=0.1 --benchmark human_score=0.9"),
    on_screen("bench", "bench fake --step-time 0.0002 --max-batches 60", codes=[0, 3], kept=False),
    on_screen("sync", "sync programs.py:train programs.py:bench", codes=[3]),
    on_screen("launch", f"launch {LAUNCH}", compares=ARMS),
    on_screen("launch-dry-run", f"launch {LAUNCH} --dry-run"),
    on_screen(
        "launch-failing",
        f"launch {FAILING}",
        codes=[4],
    ),
    on_screen("runs-list", "runs list --study study"),
    on_screen("runs-list-all", "runs list", kept=False),
    on_screen("runs-show", "runs show {run}"),
    on_screen("runs-tail", "runs tail {run}", kept=False),
    on_screen("runs-watch", "runs watch bad --once", codes=[4], kept=False),
    on_screen(
        "runs-sql",
        "runs sql select\N{NO-BREAK SPACE}study,run,seed,value\N{NO-BREAK SPACE}from\N{NO-BREAK SPACE}runs\N{NO-BREAK SPACE}where\N{NO-BREAK SPACE}study='study'\N{NO-BREAK SPACE}order\N{NO-BREAK SPACE}by\N{NO-BREAK SPACE}run",
    ),
    on_screen("runs-rm", "runs rm unknown-run", codes=[1]),
    on_screen("runs-sync", "runs sync", codes=[1], kept=False),
    on_screen("evaluate", f"evaluate study/{CANDIDATE}.seed1072"),
    on_screen("temperature", f"temperature --start 1 --end 2 --step 1 {DISTILL}", kept=False),
    on_screen("alpha", f"alpha --start 0 --end 1 --step 1 {DISTILL}", kept=False),
    on_screen("sweep", f"sweep fake --steps 4 --runs 3 --param effect=0:0.2:0.1 --param label={CONTROL},{CANDIDATE}"),
    on_screen(
        "compare", f"compare --strategies kd,attention {DISTILL}", compares=("kd", "attention", "none"), kept=False
    ),
    on_screen(
        "ablation",
        f"ablation --components temperature,attention_loss --all-pairs {DISTILL}",
        compares=("Full model", "− temperature − attention_loss"),
        kept=False,
    ),
    on_screen("variance", f"variance study/{CONTROL}.*"),
    on_screen("variance-few", "variance {run}"),
    on_screen("analyze", "analyze study", compares=ARMS),
    on_screen(
        "analyze-all",
        "analyze study --ttest.enabled --power.enabled --method bca --metric eval_accuracy --metric train_loss",
        compares=ARMS,
    ),
    on_screen("analyze-three", "analyze three --sesoi 0.01", compares=ARMS),
    on_screen("analyze-target", "analyze study --target 0.7", compares=ARMS),
    on_screen("analyze-file", "analyze --from results.csv --metric loss", compares=ARMS),
    on_screen("analyze-table", "analyze --from table.csv --metric accuracy", compares=ARMS),
    on_screen("power", "power --sesoi 0.02 --sd 0.03 --hours-per-run 2 --gpu t4"),
    on_screen("power-pilot", f"power --sesoi 0.02 --pilot study/{CONTROL}.*", kept=False),
    on_screen("cost-performance", "cost-performance --configs points.yaml"),
    on_screen("recommend", "recommend --configs points.yaml --max-cost 20"),
    on_screen("recommend-none", "recommend --configs points.yaml --max-cost 1", codes=[3]),
    on_screen(
        "research-init",
        "research init --id artifact --title A\N{NO-BREAK SPACE}title --type experiment --author A\N{NO-BREAK SPACE}Person --date 2025-01-02 --output project-{width}",
    ),
    on_screen("research-cite", "research cite project/artifact.yaml"),
    on_screen(
        "research-bundle",
        "research bundle project/artifact.yaml --output bundle-{width}.zip --zip --study study --no-charts",
        kept=False,
    ),
    on_screen("research-verify", "research verify project/nothing.zip", codes=[1]),
    on_screen("doctor", "doctor", kept=False),
    on_screen("doctor-damage", "doctor --damage", kept=False),
]


def screen_of(words: Sequence[str], width: int) -> tuple[int, str, str]:
    """Run a command that writes to a terminal of this width; return its exit code, its screen and what it said."""
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    read: list[bytes] = []

    def collect() -> None:
        while True:
            try:
                chunk = os.read(controller, 65536)
            except OSError:  # the other side is closed
                return
            read.append(chunk)

    reader = threading.Thread(target=collect)
    reader.start()
    said = StringIO()
    surroundings = {"COLUMNS": str(width), "LINES": "40", "NO_COLOR": "1", "TERM": "xterm"}
    with (
        os.fdopen(terminal, "w", encoding="utf-8") as screen,
        mock.patch.dict(os.environ, surroundings),
        mock.patch.object(sys, "stdout", screen),
        mock.patch.object(sys, "stderr", said),
    ):
        code = run([word.replace("{width}", str(width)) for word in words])
    reader.join()
    os.close(controller)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", b"".join(read).decode()).replace("\r\n", "\n")
    return code, text, said.getvalue()


PROGRAMS = """
import click

@click.command()
@click.option("--learning-rate", default=0.1, help="Step size of the optimizer.")
@click.option("--an-option-with-a-name-of-forty-characters", default=1, help="An option that only one of them has.")
def train(**options): ...

@click.command()
@click.option("--learning-rate", default=0.2, help="Step size of the optimizer.")
def bench(**options): ...
"""
POINTS = f"""
- {{name: {CONTROL}, hours: 2.1, accuracy: 0.845, memory: 14, device: a100-80gb, rank: 8}}
- {{name: {CANDIDATE}, hours: 5.8, accuracies: [0.868, 0.872, 0.873], seeds: [1, 2, 3], memory: 18, device: a100-80gb}}
- {{name: full, hours: 48.2, accuracy: 0.882, memory: 56, device: a100-80gb}}
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, data_cache: Path, _job_servers: WarmJobServers) -> Iterator[Path]:
    """A folder with a small store that all screens share."""
    folder = tmp_path_factory.mktemp("lab")
    link_data(Store(folder / "store"), data_cache)
    (folder / "programs.py").write_text(PROGRAMS)
    (folder / "points.yaml").write_text(POINTS)
    rows = [f"{arm},{seed},{0.5 + 0.01 * seed - 0.1 * (arm == CANDIDATE)}" for arm in ARMS for seed in range(1, 6)]
    (folder / "results.csv").write_text("\n".join(["variant,seed,loss", *rows]))
    (folder / "table.csv").write_text(f"variant,mean,sd,n\n{CONTROL},0.85,0.01,5\n{CANDIDATE},0.9,0.012,5\n")
    three = (
        f"--base-run-name three --variant {CONTROL}: --variant {CANDIDATE}:effect=0.1 --variant c:effect=0.001,label=c"
    )
    with pytest.MonkeyPatch.context() as patch:
        stand_in = SimpleNamespace(Popen=_job_servers.popen, PIPE=subprocess.PIPE)
        patch.setattr(importlib.import_module("fairtrial.launch.local"), "subprocess", stand_in)
        patch.setattr(os, "fsync", do_not_wait_for_the_disk)
        patch.setenv("FAIRTRIAL_STORE", "store")
        patch.chdir(folder)
        assert run(["launch", *LAUNCH.split(), "--quiet"]) == 0
        assert run(["launch", "fake", "--steps", "4", "--seeds", "4", *three.split(), "--quiet"]) == 0
        assert run(["launch", *FAILING.split(), "--quiet"]) == 4
        words = "research init --id artifact --title Title --type experiment --author Person --date 2025-01-02"
        assert run([*words.split(), "--output", "project", "--quiet"]) == 0
        yield folder


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("shown", SHOWN, ids=lambda shown: shown.name)
def test_every_screen_obeys_the_rules_and_is_the_one_that_was_reviewed(
    shown: Shown, width: int, lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRTRIAL_STORE", "store")
    monkeypatch.chdir(lab)
    for looks in [*lab.glob("store/*/looks.jsonl"), *lab.glob("store/*/.looks.seal.json")]:
        looks.unlink()  # screens do not depend on which others came before
    code, screen, said = screen_of(shown.words, width)
    assert code in shown.codes, said
    assert not problems_of(screen, width)
    assert not PLURAL.search(said), said
    assert not (shown.compares and missing_in(screen, shown.compares))
    if shown.kept:
        compare_with_file(SCREENS / f"{shown.name}-{width}.txt", steady(screen or said, lab))


def steady(text: str, lab: Path) -> str:
    """Return a screen without what differs from run to run: times, sizes in memory, and where the test runs."""
    text = re.sub(r" *\b\d[\d.,]* (s|MB|days ago)\b", r" # \1", text.replace(str(lab), "LAB"))
    return re.sub(r" +(time|time per run)$| +$", lambda match: f"  {match[1]}" if match[1] else "", text, flags=re.M)


def compare_with_file(path: Path, text: str) -> None:
    if os.environ.get("FAIRTRIAL_WRITE_SCREENS"):
        path.write_text(text)
    assert path.exists(), f"{path} is missing; write it with FAIRTRIAL_WRITE_SCREENS=1"
    assert text == path.read_text(), (
        f"the screen changed; if it should, write it with FAIRTRIAL_WRITE_SCREENS=1: {path}"
    )


def test_every_command_has_a_screen() -> None:
    """All but two: the smallest `profile` doubles the time of this module, and `completion` prints a shell script."""
    assert set(COMMANDS) - {shown.words[0] for shown in SHOWN} == {"profile", "completion"}


def test_no_screen_is_kept_of_a_command_that_is_gone() -> None:
    kept = {f"{shown.name}-{width}.txt" for shown in SHOWN if shown.kept for width in WIDTHS}
    assert {path.name for path in SCREENS.iterdir()} == kept
