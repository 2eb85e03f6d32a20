"""Writes a store, checkpoints and a research bundle as the present version writes them, for tests to open ever after.

    python tools/make_old_files.py --name v0.1

Makes `tests/old_files/NAME.tar.xz` and `tests/old_files/NAME.json`: questions that tests ask about those files, and
what this version answers. Old files are never made anew for a later version: it gets a name of its own.
"""

from __future__ import annotations

import argparse
import io
import json
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))  # this file is run as a program

from tools.compare_outputs import (  # noqa: E402
    BETWEEN_S,
    FIXTURES,
    START,
    WORK,
    only_one_at_a_time,
    prepare,
    read_commands,
    run,
)

TARGET = HERE.parent / "tests" / "old_files"
MOST_BYTES = 300_000
FAILING = {"store.failed": 4, "store.diverged": 4}
"""Commands whose run is to fail, and their exit code."""

RESUMED = ("run", "status", "already_done", "best_metric_value", "best_checkpoint_step", "final")
EVALUATED = ("run", "checkpoint", "step", "metrics")

QUESTIONS: dict[str, tuple[str, list[str], tuple[str, ...]]] = {
    "list": ("lab", ["runs list --format json"], ()),
    "show": ("lab", ["runs show small/kd.seed1072 --format json"], ()),
    "show-failed": ("lab", ["runs show small/broken.seed1072 --format json"], ("status", "final", "fingerprint")),
    "sql": (
        "lab",
        ["runs sql 'select study, variant, avg(value) mean from runs group by all order by all' --format json"],
        (),
    ),
    "export": ("lab", ["runs export 'ab/*' 'programs/*' --format json"], ()),
    "analyze": ("lab", ["analyze ab --sesoi 0.01 --format json"], ()),
    "analyze-programs": ("lab", ["analyze programs --format json"], ()),
    "variance": ("lab", ["variance ab:control --format json"], ()),
    "power": ("lab", ["power --sesoi 0.01 --pilot ab:control --pilot ab:candidate --format json"], ()),
    "cost-performance": ("lab", ["cost-performance ab --gpu t4 --device l4 --format json"], ()),
    "resume-classify": ("lab", ["train --resume stopped/linear.seed1072 --format json"], RESUMED),
    "resume-ppo": ("lab", ["train --resume stopped/cartpole.seed1072 --format json"], RESUMED),
    "resume-fake": ("lab", ["train --resume stopped/fake.seed1072 --format json"], RESUMED),
    "done-already": (
        "lab",
        ["train distill --data digits --student linear --steps 6 --eval-every 3 --checkpoint-every 0 --labels 200"
         " --teacher linear --teacher-width 0 --teacher-steps 6 --study small --variant kd --format json"],
        RESUMED,
    ),
    "launch-more": (
        "lab",
        ["launch fake --variant control:effect=0 --variant candidate:effect=0.04 --seeds 6 --steps 20 --eval-every 10"
         " --checkpoint-every 0 --base-run-name ab --jobs 1 --quiet", "analyze ab --format json"],
        ("comparisons",),
    ),
    "evaluate-last": ("lab", ["evaluate stopped/linear.seed1072 --checkpoint last --format json"], EVALUATED),
    "evaluate-best": ("lab", ["evaluate small/kd.seed1072 --format json"], EVALUATED),
    "evaluate-policy": ("lab", ["evaluate stopped/cartpole.seed1072 --checkpoint step-2 --format json"], EVALUATED),
    "damage": ("lab", ["doctor --damage --format json"], ()),
    "verify": ("project", ["research verify kept-0.1.0.zip --format json"], ()),
    "analyze-by-plan": ("project", ["analyze --plan REGISTRATION --format json"], ()),
    "sweep-done": (
        "project",
        ["sweep fake --param effect=0,0.05 --runs 2 --steps 10 --checkpoint-every 0 --study swept --jobs 1"
         " --format json"],
        (),
    ),
}  # fmt: skip
"""By name: the folder, the command lines of which the last one answers, and the keys of the answer that count."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", required=True, help="of the version that writes them, such as v0.1")
    name = parser.parse_args().name
    with only_one_at_a_time():
        environment = prepare(HERE.parent / "src" / "fairtrial")
        for command in read_commands(FIXTURES / "old_files.toml"):
            code = run(command, environment, WORK / "said" / command.name)
            assert code == FAILING.get(command.name, 0), (WORK / "said" / command.name / "stderr").read_text()
            print(f"exit {code}  {command.name}")
        archive = pack()
        moment = str(START + 1000 * BETWEEN_S)
        answers = [answer(question, archive, {**environment, "FIXED_NOW": moment}) for question in QUESTIONS]
        shutil.rmtree(WORK)
    if len(archive) > MOST_BYTES:
        print(f"{len(archive):,} bytes are more than {MOST_BYTES:,}", file=sys.stderr)
        return 1
    TARGET.mkdir(exist_ok=True)
    (TARGET / f"{name}.tar.xz").write_bytes(archive)
    (TARGET / f"{name}.json").write_text("[\n" + ",\n".join(map(json.dumps, answers)) + "\n]\n")
    print(f"{len(archive):,} bytes, {len(answers)} questions: {TARGET}")
    return 0


def pack() -> bytes:
    """Both folders without caches and repositories; hard links between checkpoints stay links."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz", preset=9) as archive:
        for name in ("lab", "project"):
            archive.add(WORK / name, name, filter=_wanted)
    return packed.getvalue()


def _wanted(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if {".git", ".cache"} & set(Path(entry.name).parts):
        return None
    entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = int(START), 0, 0, "", ""
    return entry


def answer(question: str, archive: bytes, environment: dict[str, str]) -> dict[str, Any]:
    """Ask this version about the files as a test will: unpacked afresh, in a folder that it has never seen."""
    folder, lines, keys = QUESTIONS[question]
    with tempfile.TemporaryDirectory() as place:
        with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
            packed.extractall(place, filter="data")
        commands = [_words(line, Path(place) / folder) for line in lines]
        for words in commands:
            done = subprocess.run(
                [sys.executable, "-m", "fairtrial", *words], cwd=Path(place) / folder, env=environment,
                capture_output=True, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr.decode()
        document = json.loads(done.stdout)
    values = dict(_leaves({key: document[key] for key in keys} if keys else document))
    print(f"exit {done.returncode}  {question}: {len(values)} values")
    return {"name": question, "folder": folder, "commands": commands, "exit": done.returncode, "values": values}


def _words(line: str, folder: Path) -> list[str]:
    registrations = [str(path.relative_to(folder)) for path in sorted(folder.glob("registrations/*.json"))]
    return [registrations[0] if word == "REGISTRATION" else word for word in shlex.split(line)]


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Numbers, truth values and nulls by the way to them, such as comparisons/0/effect/value. Texts are not promised,
    but for how a run ended and what the verdict is."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from _leaves(item, f"{path}/{key}".lstrip("/"))
    elif not isinstance(value, str) or path.rpartition("/")[2] in ("status", "verdict", "run", "fingerprint", "sha256"):
        yield path, value


if __name__ == "__main__":
    raise SystemExit(main())
