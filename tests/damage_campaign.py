"""Damages copies of a store in every way that was thought of, and holds what commands say against the whole store.

A case is: one file, one way to damage it, and perhaps caches that are gone. After it every command must give the result
that it gives for the whole store, or name the damage; it must show all other runs as they are; and it must not end with
anything but an answer. `python -m tests.damage_campaign COUNT [SEED]` runs it by hand.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from fairtrial.api.benchmarking.doctor import damage_of
from fairtrial.api.comparing.analyze import analyze
from fairtrial.api.comparing.power import power
from fairtrial.api.comparing.variance import variance
from fairtrial.api.lab.arms import LabConfig
from fairtrial.api.pricing.cost_performance import cost_performance
from fairtrial.api.pricing.points import Source
from fairtrial.api.running.evaluate import evaluate
from fairtrial.api.running.launch import dry_run, launch
from fairtrial.api.running.runs import export_runs, last_metrics, list_runs, query, show_run
from fairtrial.api.running.watch import watch_study
from fairtrial.core.errors import FairtrialError
from fairtrial.core.runs import Status
from fairtrial.launch.policy import ExecutionPolicy
from fairtrial.plan.study import Study

STUDY = "demo"
SEEDS = (1072, 2043, 3014, 4085)
STEPS = 60
Say = Callable[[Path, str], Any]


def study() -> Study:
    return Study(
        study=STUDY, recipe="fake", options={"steps": STEPS}, variants={"base": {}, "new": {"effect": 0.2}},
        seeds=list(SEEDS),
    )  # fmt: skip


def build(root: Path) -> None:
    """A study that was run, evaluated again, looked at and listed: every kind of file that damage can be done to."""
    with fairtrial_here(root):
        launch(study(), store=root, terms=ExecutionPolicy(jobs=1))
        evaluate([f"{STUDY}/base.seed1072"], store=root)
        analyze(STUDY, store=root)
        list_runs(store=root)
    for paths in sorted(root.glob(f"{STUDY}/*/.taking-over")):
        paths.unlink()


class fairtrial_here:  # noqa: N801 — used like a function
    """Work in the folder of a store: outside of every repository, so that no commit is recorded."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def __enter__(self) -> None:
        self._before = Path.cwd()
        self._root.mkdir(parents=True, exist_ok=True)
        os.chdir(self._root)

    def __exit__(self, *_: object) -> None:
        os.chdir(self._before)


# Ways to damage a file


def truncate(path: Path, chance: random.Random) -> str:
    content = path.read_bytes()
    kept = chance.randrange(len(content)) if content else 0
    path.write_bytes(content[:kept])
    return f"cut to {kept} bytes"


def truncate_lines(path: Path, chance: random.Random) -> str:
    lines = path.read_bytes().splitlines(keepends=True)
    kept = chance.randrange(len(lines)) if lines else 0
    path.write_bytes(b"".join(lines[:kept]))
    return f"cut to {kept} lines"


def empty(path: Path, chance: random.Random) -> str:
    path.write_bytes(b"")
    return "emptied"


def remove(path: Path, chance: random.Random) -> str:
    path.unlink()
    return "removed"


def flip(path: Path, chance: random.Random) -> str:
    content = bytearray(path.read_bytes())
    for _ in range(chance.choice((1, 1, 1, 3, 8))):
        if content:
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(bytes(content))
    return "bits flipped"


def append(path: Path, chance: random.Random) -> str:
    with path.open("ab") as file:
        file.write(chance.choice((b"\0" * 40, b"garbage\n", b'{"step": 7}\n', b"[]\n", b'{"step": 99, "_time": 1}')))
    return "something appended"


def change_value(path: Path, chance: random.Random) -> str:
    """Another value somewhere in the document, the rest as it was: what a careless script leaves."""
    document = json.loads(path.read_bytes())
    place, key = chance.choice(list(_places(document)))
    old = place[key]
    place[key] = chance.choice([each for each in _VALUES if each != old or type(each) is not type(old)])
    path.write_text(json.dumps(document))
    return f"{key} is {place[key]!r}, was {old!r}"[:80]


def wrong_type(path: Path, chance: random.Random) -> str:
    """A value of a wrong type in metadata without a checksum, such as an earlier version wrote."""
    document = json.loads(path.read_bytes())
    document.pop("checksum", None)
    name, value = chance.choice(_WRONG)
    *above, last = name.split(".")
    place = document
    for key in above:
        place = place[key]
    place[last] = value
    path.write_text(json.dumps(document))
    return f"{name} is {value!r}, without a checksum"


def change_line(path: Path, chance: random.Random) -> str:
    """One line of many gets another value, or is another document."""
    lines = path.read_bytes().splitlines(keepends=True)
    if not lines:
        return "nothing to change"
    at = chance.randrange(len(lines))
    document = json.loads(lines[at])
    if chance.random() < 0.3:
        document = chance.choice((None, [], "x", 17, {}, {"event": 5}, {"step": "x"}))
    else:
        place, key = chance.choice(list(_places(document)))
        place[key] = chance.choice(_VALUES)
    lines[at] = json.dumps(document).encode() + b"\n"
    path.write_bytes(b"".join(lines))
    return f"line {at + 1} changed"


_VALUES: tuple[Any, ...] = (None, 17, -1, 0, 0.5, 1e300, "x", "", True, [], {}, [1], {"a": None}, 2**63, 10**30)
_WRONG: tuple[tuple[str, Any], ...] = (
    ("environment", None), ("environment", []), ("environment.versions", "x"), ("timings", None),
    ("timings.created", "now"), ("timings.created", None), ("timings.wall_s", "1"), ("seed", "1072"), ("seed", -1),
    ("seed", 2**63), ("seed", 1072.0), ("seed", True), ("attempt", 0), ("attempt", None), ("status", "done"),
    ("status", None), ("status", "damaged"), ("status", {}), ("options", None), ("options", []), ("identity", None),
    ("final", None), ("final", {"loss": []}), ("final", {"loss": "low"}), ("final.report_accuracy", None),
    ("cautions", None), ("cautions", [1]), ("cautions", [{"code": 1}]), ("lineage", None), ("lineage.resumed", None),
    ("lineage.streams", [1]), ("resources", None), ("resources.parameters", "many"), ("data", "x"),
    ("data", {"name": 1}), ("run_id", 7), ("run_id", "new.seed2043"), ("study", "other"), ("variant", None),
    ("variant", "else"), ("metric", 5), ("direction", "up"), ("best_metric_value", "high"),
    ("best_checkpoint_step", 2.5), ("best_checkpoint_sha256", "short"), ("best_pending", {}), ("best_pending", 1),
    ("fingerprint", None), ("fingerprint", "x"), ("synthetic", "yes"), ("recipe", None), ("schema", None),
    ("schema", 99), ("schema", "1"), ("sealed", []), ("sealed", {"metrics.jsonl": 5}), ("telemetry", 3),
)  # fmt: skip


def _places(document: Any) -> Iterator[tuple[Any, Any]]:
    entries = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in list(entries):
        if key != "checksum":
            yield document, key
        if isinstance(value, dict | list) and value:
            yield from _places(value)


Way = Callable[[Path, random.Random], str]
PLAIN: tuple[Way, ...] = (truncate, empty, flip, remove, append)
LINES: tuple[Way, ...] = (truncate, truncate_lines, empty, flip, remove, append, change_line)
KINDS: dict[str, tuple[Way, ...]] = {
    "metadata.json": (truncate, empty, flip, flip, append, change_value, change_value, wrong_type, wrong_type, wrong_type),
    "metrics.jsonl": LINES,
    "metrics.parquet": (truncate, empty, flip, flip, flip, remove, append),
    "events.jsonl": LINES,
    "checkpoints/best.pt": PLAIN,
    "checkpoints/last.pt": PLAIN,
    "checkpoints/step-60.pt": PLAIN,
    ".pulse": PLAIN,
    "study.json": (truncate, empty, flip, flip, append, change_value),
    "looks.jsonl": LINES,
    ".cache/index.json": PLAIN,
    ".cache/series/demo.arrow": (truncate, empty, flip, flip, remove, append),
}  # fmt: skip
SWAPPED = ("metadata.json", "metrics.jsonl", "metrics.parquet", "events.jsonl", "checkpoints/best.pt")


@dataclass(frozen=True)
class Case:
    """What was done: to which file of which run, and whether the caches were still there."""

    kind: str
    run: str | None
    way: str
    told: str
    cached: bool

    def __str__(self) -> str:
        return f"{self.run or 'store'}: {self.kind}: {self.way} ({self.told}){'' if self.cached else ', no caches'}"


def damage(root: Path, chance: random.Random) -> Case:
    """Damage one file of a store."""
    kind = chance.choice([*KINDS, *("metadata.json", "metrics.jsonl", "events.jsonl", "metrics.parquet") * 2])
    cached = kind.startswith(".cache") or chance.random() < 0.4
    if not cached:
        shutil.rmtree(root / ".cache", ignore_errors=True)
    if kind in ("study.json", "looks.jsonl"):
        path, run = root / STUDY / kind, None
    elif kind.startswith(".cache"):
        path, run = root / kind, None
    else:
        run = f"{chance.choice(('base', 'new'))}.seed{chance.choice(SEEDS)}"
        path = root / STUDY / run / kind
    if kind in SWAPPED and chance.random() < 0.25:
        return Case(kind, run, "swap", _swap(path, str(run), chance), cached)
    way = chance.choice(KINDS[kind])
    return Case(kind, run, way.__name__, way(path, chance), cached)


def _swap(path: Path, run: str, chance: random.Random) -> str:
    """Two runs change places in one file; or one file is a copy of the other."""
    others = [f"{variant}.seed{seed}" for variant in ("base", "new") for seed in SEEDS]
    other = chance.choice([each for each in others if each != run])
    there = Path(str(path).replace(f"/{run}/", f"/{other}/"))
    mine, theirs = path.read_bytes(), there.read_bytes()
    path.write_bytes(theirs)
    if chance.random() < 0.5:
        there.write_bytes(mine)
        return f"swapped with {other}"
    return f"is that of {other}"


# What commands say


def _without(document: Any, names: frozenset[str]) -> Any:
    if isinstance(document, dict):
        return {key: _without(value, names) for key, value in document.items() if key not in names}
    return [_without(each, names) for each in document] if isinstance(document, list | tuple) else document


_NOT_RESULTS = frozenset(
    {"log_tail", "path", "created", "silent_s", "heard_s", "left_s", "store", "root", "at", "kept"}
)


def _plain(document: Any, root: Path) -> str:
    """A result as text that can be compared: without times and the place of the store."""
    text = json.dumps(_without(document, _NOT_RESULTS), default=str, sort_keys=True)
    return text.replace(str(root), "STORE")


ALL_RUNS: dict[str, Callable[[Path], Any]] = {
    "runs list": lambda root: [dict(row) for row in list_runs(store=root)],
    "runs watch": lambda root: watch_study(STUDY, store=root).to_dict(),
    "runs export": lambda root: list(export_runs([f"{STUDY}/*"], store=root)),
    "runs sql": lambda root: query("select study, run, status, reason, value from runs order by run", store=root),
    "runs sql metrics": lambda root: _asked("select run, metric, count(*), sum(value) from metrics group by all", root),
    "analyze": lambda root: analyze(STUDY, store=root).to_dict(),
    "variance": lambda root: variance([f"{STUDY}:new"], store=root).to_dict(),
    "power": lambda root: power(sesoi=0.1, pilot=[f"{STUDY}:new"], store=root).to_dict(),
    "launch --dry-run": lambda root: [(each.spec.run_id, each.status) for each in dry_run(study(), store=root)],
}
ONE_RUN: dict[str, Say] = {
    "runs show": lambda root, run: _shown(show_run(f"{STUDY}/{run}", store=root)),
    "runs tail": lambda root, run: last_metrics(f"{STUDY}/{run}", store=root, lines=100),
}


def _asked(sql: str, root: Path) -> Any:
    damaged: list[str] = []
    found = query(f"{sql} order by all", store=root, damaged=lambda *told: damaged.append(" is damaged: ".join(told)))
    return [found, damaged]


def _shown(shown: Any) -> dict[str, Any]:
    return {**vars(shown), "run": {**shown.run.metadata, "status": shown.run.status}}


def answer(command: Callable[[], Any], root: Path) -> tuple[str, bool]:
    """What a command says, and whether it ended with an error that a person can act on. Anything else is raised."""
    try:
        return _plain(command(), root), False
    except FairtrialError as error:
        return f"{error}".replace(str(root), "STORE"), True


@dataclass
class Tally:
    """How a campaign went. The lists hold a sentence per problem."""

    cases: int = 0
    answers: int = 0
    equal: int = 0
    named: int = 0
    wrong: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    crashed: list[str] = field(default_factory=list)
    unfound: list[str] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)

    @property
    def problems(self) -> list[str]:
        return [*self.wrong, *self.stopped, *self.crashed, *self.unfound]


WORDS = ("damaged", "checksum", "was changed", "is missing", "bytes", "not the plan of", "not JSON", "recorded hash")


def campaign(folder: Path, count: int, seed: int = 1, *, launching: int = 0) -> Tally:
    """Damage a store `count` times. Every `launching`-th time the study is launched again, and a checkpoint evaluated."""
    whole = folder / "whole"
    build(whole)
    tally = Tally()
    with fairtrial_here(folder):
        for command in ALL_RUNS.values():
            command(whole)
        known = {name: answer(partial(command, whole), whole)[0] for name, command in ALL_RUNS.items()}
        for run in _runs():
            for name, say in ONE_RUN.items():
                known[f"{name} {run}"] = answer(partial(say, whole, run), whole)[0]
        for number in range(count):
            chance = random.Random(f"{seed} {number}")
            root = folder / f"case-{number}"
            shutil.copytree(whole, root, symlinks=True)
            case = damage(root, chance)
            tally.cases += 1
            tally.kinds[f"{case.kind} {case.way}"] += 1
            _check(tally, case, number, root, known, launching=bool(launching) and number % launching == 0)
            shutil.rmtree(root)
    return tally


def _runs() -> list[str]:
    return [f"{variant}.seed{seed}" for variant in ("base", "new") for seed in SEEDS]


def _check(tally: Tally, case: Case, number: int, root: Path, known: dict[str, str], *, launching: bool) -> None:
    where = f"case {number}, {case}"
    commands: dict[str, Callable[[], Any]] = {name: partial(command, root) for name, command in ALL_RUNS.items()}
    other = next(run for run in _runs() if run != case.run and run not in case.told)
    for run in [case.run or other, other]:
        commands |= {f"{name} {run}": partial(say, root, run) for name, say in ONE_RUN.items()}
    for name, command in commands.items():
        tally.answers += 1
        try:
            said, is_error = answer(command, root)
        except Exception as error:  # noqa: BLE001 — whatever it is, it must not get here
            tally.crashed.append(f"{where}: {name}: {type(error).__name__}: {error}")
            continue
        if said == known[name]:
            tally.equal += 1
        elif any(word in said for word in WORDS) and _names(said, case):
            tally.named += 1
        else:
            tally.wrong.append(f"{where}: {name}: {_difference(known[name], said)}")
        if is_error and name in ALL_RUNS and not (case.kind == "study.json" and name == "analyze"):
            tally.stopped.append(f"{where}: {name}: {said}")
        if f" {other}" in name and said != known[name]:
            tally.stopped.append(f"{where}: {name}: another run's answer changed: {_difference(known[name], said)}")
        if name in ("runs list", "runs export") and not is_error:
            tally.stopped += _others_changed(where, name, case, known[name], said)
    _check_doctor(tally, where, case, root, root.with_name("whole"))
    if launching:
        _check_launch(tally, where, case, root)


def _names(said: str, case: Case) -> bool:
    """Whether a result names a damaged run, or the file of a study or store."""
    if case.run is None:
        return case.kind.rpartition("/")[2] in said
    return any(run in said for run in _runs() if run == case.run or run in case.told)


def _difference(before: str, now: str) -> str:
    at = next((i for i, (a, b) in enumerate(zip(before, now, strict=False)) if a != b), min(len(before), len(now)))
    return f"…{before[max(0, at - 60) : at + 60]}… became …{now[max(0, at - 60) : at + 60]}…"


def _others_changed(where: str, name: str, case: Case, before: str, now: str) -> list[str]:
    """Rows of runs that nobody touched must be there as they were."""
    touched = {case.run, *(run for run in _runs() if run in case.told)}
    sides = [
        [json.dumps(row, sort_keys=True) for row in json.loads(text) if row["run"] not in touched]
        for text in (before, now)
    ]
    missing = sorted(set(sides[0]) ^ set(sides[1]))
    return [f"{where}: {name}: rows of other runs changed: {missing[0][:120]}"] if missing else []


def _is_harmless(case: Case, root: Path, whole: Path) -> bool:
    """Whether nothing of what was recorded is lost: white space, the name of the checksum, a line that nobody reads."""
    relative = Path(STUDY, case.run or "", case.kind)
    before, now = (whole / relative).read_bytes(), (root / relative).read_bytes()
    if case.kind.endswith(".jsonl"):  # an unfinished last line
        return now[: now.rfind(b"\n") + 1] == before
    if not case.kind.endswith(".json"):
        return now == before
    try:
        said, says = json.loads(before), json.loads(now)
    except ValueError:
        return False
    return all(key in says and says[key] == value for key, value in said.items() if key != "checksum")


def _check_doctor(tally: Tally, where: str, case: Case, root: Path, whole: Path) -> None:
    """`doctor --damage` finds it, repairs what it says that it can, and then finds nothing of that any more."""
    try:
        before = {path: path.read_bytes() for path in root.glob(f"{STUDY}/*/*.json*") if path.is_file()}
        found = damage_of(root)
        noticed = bool(found.damage) or _is_rebuilt(case) or _is_harmless(case, root, whole)
        if not noticed:
            tally.unfound.append(f"{where}: doctor finds nothing")
        repaired = damage_of(root, repair=True)
        left = damage_of(root)
    except Exception as error:  # noqa: BLE001
        tally.crashed.append(f"{where}: doctor: {type(error).__name__}: {error}")
        return
    if len(left.damage) != len(repaired.remaining) or any(each.mend for each in left.damage):
        tally.wrong.append(f"{where}: doctor: {len(repaired.remaining)} remained, then {len(left.damage)} were found")
    for path, content in before.items():
        kept = [each.read_bytes() for each in root.glob(f".archive/*/{path.relative_to(root)}")]
        if not path.exists() or (path.read_bytes() != content and content not in kept):
            tally.wrong.append(f"{where}: doctor lost {path.name}")


def _is_rebuilt(case: Case) -> bool:
    """Caches that are gone are nothing to report, nor is a pulse or a file that a list of runs has just rewritten."""
    return case.kind.startswith(".cache") or case.kind == ".pulse" or case.way == "remove"


def _check_launch(tally: Tally, where: str, case: Case, root: Path) -> None:
    """Launching again leaves a damaged run alone, says so, and makes nothing else anew; evaluating goes on."""
    commands: tuple[tuple[str, Callable[[], Any]], ...] = (
        ("launch", lambda: launch(study(), store=root, terms=ExecutionPolicy(jobs=1))),
        ("evaluate", lambda: evaluate([f"{STUDY}/base.*"], store=root).to_dict()),
        ("cost-performance", lambda: cost_performance(Source(study=STUDY), terms=LabConfig(store=root))),
    )
    for name, command in commands:
        tally.answers += 1
        try:
            said = command()
        except FairtrialError as error:
            is_all = case.kind == "study.json" or name == "cost-performance"
            if not is_all or not any(word in str(error) for word in (*WORDS, "hours")):
                tally.stopped.append(f"{where}: {name}: {error}")
            continue
        except Exception as error:  # noqa: BLE001
            tally.crashed.append(f"{where}: {name}: {type(error).__name__}: {error}")
            continue
        tally.equal += 1
        if name == "launch":
            strange = [run.name for run in said.runs if run.status not in (Status.COMPLETED, Status.DAMAGED)]
            if strange or len(said.runs) != len(_runs()):
                tally.wrong.append(f"{where}: launch: {strange or len(said.runs)}")


def main(arguments: list[str]) -> int:
    count, seed = int(arguments[0]) if arguments else 100, int(arguments[1]) if len(arguments) > 1 else 1
    with tempfile.TemporaryDirectory(prefix="fairtrial-damage-") as folder:
        tally = campaign(Path(folder), count, seed, launching=10)
    for problem in tally.problems:
        print(problem)
    print(f"{tally.cases} cases, {tally.answers} answers: {tally.equal} equal, {tally.named} name the damage; ", end="")
    print(f"{len(tally.wrong)} wrong, {len(tally.stopped)} stopped, {len(tally.crashed)} crashed, ", end="")
    print(f"{len(tally.unfound)} not found by doctor")
    return 1 if tally.problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
