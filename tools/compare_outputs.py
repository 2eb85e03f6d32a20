"""Shows that two versions of the source give the same outputs, byte for byte.

    python tools/compare_outputs.py record --source OLD --output before
    python tools/compare_outputs.py record --source NEW --output after
    python tools/compare_outputs.py compare before after

`record` runs every command of `tools/outputs/commands.toml` on a copy of the source, in a folder that always has the
same path, with a fixed clock, host name, process ids, version and signing key. Those come from
`tools/outputs/sitecustomize.py`, which Python itself loads: nothing here depends on a name inside the package. It keeps
what each command printed, its exit code, and all files that were written. `compare` lists every difference and ends
with 1 if there is one.

Only what two recordings of one tree cannot agree on is left out or blanked: LEFT_OUT and BLANKED say what and why.
With --allow-prose sentences may differ too (PROSE_KEYS, and printed text as long as its numbers stay the same).

Recorded durations count how often the clock was read. A change that reads it more or less often therefore shows in
every duration, and through checksums in much else. To see what else differs then, record both with --fine-clock, which
makes durations so short that those of series are 0, and compare with --allow-durations (DURATION_KEYS).
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import difflib
import fcntl
import fnmatch
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FIXTURES = HERE / "outputs"
PACKAGE = "fairtrial"
WORK = Path(tempfile.gettempdir()) / "fairtrial-outputs"
"""Always the same path: outputs name it, and compressed ones cannot be searched for it afterwards."""

START = 1_790_000_000.25
"""The moment of the first command, 21 September 2026; each later command is a minute later."""
BETWEEN_S = 60
TICK, FINE_TICK = 1 / 1024, 2.0**-40
"""Seconds that pass with each reading of the clock: exact in binary, so that differences are exact too."""
FIXED = {"FIXED_HOST": "fixed-host", "FIXED_VERSION": "0.0.0", "FIXED_PACKAGE": PACKAGE}
GIT_DATE = "2026-09-01T00:00:00Z"
VERSION_LINE = re.compile(r"""^__version__\s*=\s*["'].*?["']""", re.MULTILINE)
TIMEOUT_S = 300

LEFT_OUT = {
    "*/.cache/index.json": "a cache, keyed by inode and modification time of files",
    "*/.cache/series/*": "a cache, keyed by inode and modification time of files",
    "*/.git/*": "the repositories that the commands run in: made by this tool",
}
"""Files that are not compared, and why."""


@dataclass(frozen=True)
class Blank:
    """Part of a file that says how long something really took. `pattern` has it as its group `real`."""

    files: str
    pattern: str
    reason: str


BLANKED = (
    Blank(
        "commands/*/stderr", r"^  [✓✗!·–-] \S+  \w+.*?  (?P<real>[\d.,]+ (?:ms|s|min|h))",
        "the time on each line of progress is real time since the run was started (time.monotonic)",
    ),
    Blank(
        "commands/sync.*/stdout", r"^Test result: \w+ in (?P<real>[\d.,]+ s)",
        "how long the test program really took (time.monotonic)",
    ),
    Blank(
        "*/.pulse", r"\"step\":(?P<real>\d+,\"saved\":\d+)",
        "how far a run was at its last heartbeat, which comes after a real time",
    ),
    Blank(
        "commands/*/stdout", r"/fairtrial-[a-z]+-(?P<real>[a-z0-9_]{8})(?=/)",
        "the random name of a temporary folder that is gone when the command ends",
    ),
    Blank(
        "*", r"^(?P<real>(?:  File \"[^\"]*/fairtrial/[^\"]*\", line \d+, in .*\n(?:    .*\n)*)+)",
        "frames of a traceback inside the package: names of its modules and functions are what a renovation changes",
    ),
)  # fmt: skip

PROSE_KEYS = frozenset({
    "caution", "cautions", "description", "evidence", "help", "hint", "message", "next", "rationale", "reason",
    "remark", "remedy", "sentence", "text", "what", "why",
})  # fmt: skip
"""Keys of JSON documents whose sentences --allow-prose lets differ. Their numbers must stay."""
DERIVED_KEYS = frozenset({"bytes", "checksum", "crc32", "sha256", "signature", "size", "contentSize"})
"""Keys that follow from the bytes of another file, which is compared itself; both options let them differ."""
DURATION_KEYS = frozenset({"cpu_s", "hours", "seconds", "setup_s", "wall_s"})
"""Keys of durations, which --allow-durations lets differ."""
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")


# Recording


@dataclass(frozen=True)
class Command:
    number: int
    name: str
    folder: str
    words: tuple[str, ...]


def read_commands(file: Path = FIXTURES / "commands.toml", only: Sequence[str] = ()) -> list[Command]:
    groups = tomllib.loads(file.read_text())
    lines = [
        (f"{group}.{key}", values["folder"], tuple(shlex.split(line)))
        for group, values in groups.items()
        for key, line in values.items()
        if key != "folder"
    ]
    commands = [Command(number, *line) for number, line in enumerate(lines)]
    return [each for each in commands if not only or any(fnmatch.fnmatch(each.name, pattern) for pattern in only)]


def record(source: Path, output: Path, only: Sequence[str] = (), *, fine_clock: bool = False) -> int:
    commands = read_commands(only=only)
    if not (package := source / "src" / PACKAGE).is_dir():
        print(f"{package} is not there: --source is a checkout of the project", file=sys.stderr)
        return 1
    if output.exists():
        print(f"{output} exists already; name another --output or remove it", file=sys.stderr)
        return 1
    with only_one_at_a_time():
        environment = prepare(package)
        seconds = {}
        for command in commands:
            began = time.monotonic()
            tick = FINE_TICK if fine_clock and not command.name.startswith("measure.") else TICK
            ticking = {**environment, "FIXED_TICK": repr(tick)}
            code = run(command, ticking, output / "commands" / command.name)
            seconds[command.name] = round(time.monotonic() - began, 2)
            print(f"{command.number + 1:4}  {seconds[command.name]:6.2f} s  exit {code}  {command.name}", flush=True)
        for folder in sorted({each.folder for each in commands}):
            shutil.copytree(WORK / folder, output / "files" / folder, ignore=shutil.ignore_patterns(".git"))
        shutil.rmtree(WORK)
    about = {"commands": [each.name for each in commands], "seconds": seconds, "in_all_s": sum(seconds.values())}
    (output / "about.json").write_text(json.dumps(about, indent=1))
    print(f"{len(commands)} commands in {about['in_all_s']:.0f} s: {output}")
    return 0


@contextlib.contextmanager
def only_one_at_a_time() -> Iterator[None]:
    """The working folder has a fixed path, so a second recording waits for the first."""
    with WORK.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def prepare(package: Path) -> dict[str, str]:
    """Fill the working folder, and give the environment that the commands see: nothing of the caller's but PATH."""
    shutil.rmtree(WORK, ignore_errors=True)
    source, shim, home, temporary = (WORK / name for name in ("source", "shim", "home", "tmp"))
    for folder in (source, shim, home, temporary):
        folder.mkdir(parents=True)
    shutil.copytree(package, source / PACKAGE, ignore=shutil.ignore_patterns("__pycache__"))
    version = source / PACKAGE / "version.py"
    text, replaced = VERSION_LINE.subn(f'__version__ = "{FIXED["FIXED_VERSION"]}"', version.read_text())
    assert replaced == 1, f"{version} does not set __version__ once"
    version.write_text(text)
    shutil.copy(FIXTURES / "sitecustomize.py", shim)
    shutil.copytree(FIXTURES / "inputs", WORK / "inputs")
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(home), "TMPDIR": str(temporary), "LANG": "C.UTF-8", "TZ": "UTC",
        "TERM": "dumb", "NO_COLOR": "1", "COLUMNS": "80", "PYTHONPATH": f"{shim}:{source}", "PYTHONHASHSEED": "0",
        "PYTHONWARNINGS": "ignore::DeprecationWarning", "OMP_NUM_THREADS": "1", "FAIRTRIAL_KEY": str(write_key(home)),
        "GIT_AUTHOR_DATE": GIT_DATE, "GIT_COMMITTER_DATE": GIT_DATE, "FIXED_TICK": repr(TICK), **FIXED,
    }  # fmt: skip
    make_folders(environment)
    return environment


def write_key(folder: Path) -> Path:
    """A signing key that everybody knows, as PKCS 8, and its public half."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    secret = bytes(range(32))
    der = bytes.fromhex("302e020100300506032b657004220420") + secret
    kind = "PRIVATE KEY"
    path = folder / "key.pem"
    path.write_text(f"-----BEGIN {kind}-----\n{base64.b64encode(der).decode()}\n-----END {kind}-----\n")
    path.chmod(0o600)
    public = Ed25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw().hex()
    (WORK / "inputs" / "key.pub").write_text(f"{public}\n")
    return path


def make_folders(environment: Mapping[str, str]) -> None:
    """One folder in a repository with an uncommitted file, one in a clean repository, one in none: all is recorded."""
    (Path(environment["HOME"]) / ".gitconfig").write_text(
        "[user]\n\tname = Ada Example\n\temail = ada@example.org\n[init]\n\tdefaultBranch = main\n"
    )
    kept = {"lab": "*\n!.gitignore\n!notes.txt\n", "project": "*\n!.gitignore\n"}
    for name, ignored in kept.items():
        folder = WORK / name
        folder.mkdir()
        (folder / ".gitignore").write_text(ignored)
        for words in (["init", "--quiet"], ["add", ".gitignore"], ["commit", "--quiet", "--message", "Begin"]):
            subprocess.run(["git", *words], cwd=folder, env=dict(environment), check=True)
    (WORK / "lab" / "notes.txt").write_text("not committed\n")
    (WORK / "python").mkdir()


def run(command: Command, environment: Mapping[str, str], kept: Path) -> int:
    programs = {PACKAGE: [sys.executable, "-m", PACKAGE], "python": [sys.executable]}
    words = [*programs[command.words[0]], *(_replaced(word, WORK / command.folder) for word in command.words[1:])]
    moment = START + command.number * BETWEEN_S
    done = subprocess.run(
        words, cwd=WORK / command.folder, env={**environment, "FIXED_NOW": str(moment)}, stdin=subprocess.DEVNULL,
        capture_output=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    kept.mkdir(parents=True)
    for name, content in (("stdout", done.stdout), ("stderr", done.stderr), ("exit", b"%d\n" % done.returncode)):
        (kept / name).write_bytes(content)
    return done.returncode


def _replaced(word: str, folder: Path) -> str:
    if word.startswith("glob:"):
        pattern = word.removeprefix("glob:")
        return next((str(path.relative_to(folder)) for path in sorted(folder.glob(pattern))), pattern)
    return sys.executable if word == "python" else word


# Comparing


@dataclass(frozen=True)
class Difference:
    where: str
    what: str


class Comparison:
    """Compares contents, going into archives and documents to say where exactly they differ."""

    def __init__(self, *, allow_prose: bool = False, allow_durations: bool = False) -> None:
        self.allow_prose, self.allow_durations = allow_prose, allow_durations
        self.differences: list[Difference] = []
        self.allowed: Counter[str] = Counter()

    def note(self, where: str, what: str) -> None:
        self.differences.append(Difference(where, what))

    def contents(self, where: str, before: bytes, after: bytes) -> None:
        if before == after:
            return
        before, after = (blanked(where, content) for content in (before, after))
        if before == after:
            return
        known = len(self.differences)
        if zipfile.is_zipfile(io.BytesIO(before)) and zipfile.is_zipfile(io.BytesIO(after)):
            self._archives(where, before, after)
        elif (documents := _as_documents(before, after)) is not None:
            self._values(where, "", *documents)
        elif (texts := _as_texts(before, after)) is not None:
            self._texts(where, *texts)
        else:
            self.note(where, _binary(before, after))
        if len(self.differences) == known and not (self.allow_prose or self.allow_durations):
            self.note(where, "the bytes differ, but not what is in them: order, layout or metadata of the file")

    def _archives(self, where: str, before: bytes, after: bytes) -> None:
        one, other = (zipfile.ZipFile(io.BytesIO(content)) for content in (before, after))
        for name in _union(one.namelist(), other.namelist(), where, self.note):
            try:
                self.contents(f"{where}!{name}", one.read(name), other.read(name))
            except zipfile.BadZipFile:
                self.note(f"{where}!{name}", "cannot be read in one of them: its checksum is wrong")

    def _values(self, where: str, key: str, before: Any, after: Any) -> None:
        """JSON values, key by key, so that the one that differs is named."""
        if isinstance(before, dict) and isinstance(after, dict):
            if list(before) != list(after) and set(before) == set(after):
                self.note(where, f"{key or 'document'}: the order of the keys differs")
            for name in _union(list(before), list(after), f"{where} {key}", self.note):
                self._values(where, f"{key}.{name}".lstrip("."), before[name], after[name])
        elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
            for number, (one, other) in enumerate(zip(before, after, strict=True)):
                self._values(where, f"{key}[{number}]", one, other)
        elif repr(before) != repr(after) and not self._is_allowed(key, before, after):  # repr: 1 is not 1.0, NaN is NaN
            self.note(where, f"{key}: {_short(before)} → {_short(after)}")

    def _is_allowed(self, key: str, before: Any, after: Any) -> bool:
        names = re.findall(r"[^.\[\]]+", key)
        last = next((name for name in reversed(names) if not name.isdigit()), "")
        is_prose = self.allow_prose and last in PROSE_KEYS and isinstance(before, str) and isinstance(after, str)
        if (
            (is_prose and _numbers(before) == _numbers(after))
            or (self.allow_durations and last in DURATION_KEYS)
            or ((self.allow_prose or self.allow_durations) and last in DERIVED_KEYS)
        ):
            self.allowed[last] += 1
            return True
        return False

    def _texts(self, where: str, before: str, after: str) -> None:
        if self.allow_prose and _numbers(before) == _numbers(after):
            self.allowed["printed text"] += 1
            return
        lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0))[2:]
        shown = [line for line in lines if not line.startswith("@@")]
        self.note(where, "\n".join(["text", *shown[:8], *(["…"] if len(shown) > 8 else [])]))


def compare(before: Path, after: Path, *, allow_prose: bool = False, allow_durations: bool = False) -> Comparison:
    result = Comparison(allow_prose=allow_prose, allow_durations=allow_durations)
    one, other = (
        {str(path.relative_to(root)): path for path in sorted(root.rglob("*")) if path.is_file()}
        for root in (before, after)
    )
    for files in (one, other):
        files.pop("about.json", None)
        for name in [name for name in files if any(fnmatch.fnmatch(name, pattern) for pattern in LEFT_OUT)]:
            del files[name]
    for name in _union(list(one), list(other), "file", result.note):
        result.contents(name, one[name].read_bytes(), other[name].read_bytes())
    return result


def blanked(where: str, content: bytes) -> bytes:
    for blank in BLANKED:
        if fnmatch.fnmatch(where, blank.files):
            pattern = re.compile(blank.pattern, re.MULTILINE)
            content = pattern.sub(_without_real, content.decode(errors="surrogateescape")).encode(
                errors="surrogateescape"
            )
    return content


def _without_real(match: re.Match[str]) -> str:
    start, end = (place - match.start() for place in match.span("real"))
    return match[0][:start] + "…" + match[0][end:]


def _union(before: Sequence[str], after: Sequence[str], where: str, note: Any) -> list[str]:
    """The names that both have; the others are differences."""
    for name in sorted(set(before) - set(after)):
        note(where, f"{name} is missing in the second")
    for name in sorted(set(after) - set(before)):
        note(where, f"{name} is missing in the first")
    return [name for name in before if name in set(after)]


def _as_documents(before: bytes, after: bytes) -> tuple[Any, Any] | None:
    """Both as JSON, or as lists of JSON lines; None where one of them is neither."""
    try:
        return json.loads(before), json.loads(after)
    except ValueError:
        pass
    try:
        one, other = ([json.loads(line) for line in content.splitlines()] for content in (before, after))
    except ValueError:
        return None
    return one, other


def _as_texts(before: bytes, after: bytes) -> tuple[str, str] | None:
    try:
        return before.decode(), after.decode()
    except UnicodeDecodeError:
        return None


def _binary(before: bytes, after: bytes) -> str:
    unequal = (place for place, (one, other) in enumerate(zip(before, after, strict=False)) if one != other)
    first = next(unequal, min(len(before), len(after)))
    return f"{len(before):,} and {len(after):,} bytes, which differ from byte {first:,} on"


def _numbers(text: str) -> Counter[str]:
    return Counter(NUMBER.findall(text))


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) < 120 else f"{text[:119]}…"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    recording = verbs.add_parser("record", help="run all commands and keep their outputs")
    recording.add_argument("--source", type=Path, default=HERE.parent, help="checkout to run [default: this one]")
    recording.add_argument("--output", type=Path, required=True, help="folder to keep them in; must not exist")
    recording.add_argument(
        "--only", action="append", default=[], metavar="PATTERN", help="only commands like 'train.*'"
    )
    comparing = verbs.add_parser("compare", help="list the differences between two recordings")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.add_argument("--allow-prose", action="store_true", help="let sentences differ, but not their numbers")
    recording.add_argument("--fine-clock", action="store_true", help="make recorded durations next to nothing")
    comparing.add_argument("--allow-durations", action="store_true", help="let durations and checksums differ")
    verbs.add_parser("list", help="print the commands")
    arguments = parser.parse_args()
    if arguments.verb == "list":
        print(*(f"{each.name:32} {shlex.join(each.words)}" for each in read_commands()), sep="\n")
        return 0
    if arguments.verb == "record":
        return record(arguments.source.resolve(), arguments.output, arguments.only, fine_clock=arguments.fine_clock)
    if missing := [folder for folder in (arguments.before, arguments.after) if not (folder / "about.json").exists()]:
        print(f"{missing[0]} is not a recording", file=sys.stderr)
        return 1
    allowed = {"allow_prose": arguments.allow_prose, "allow_durations": arguments.allow_durations}
    result = compare(arguments.before, arguments.after, **allowed)
    for each in result.differences:
        print(f"{each.where}: {each.what}")
    for name, count in sorted(result.allowed.items()):
        print(f"allowed: {count} × {name}")
    print(f"{len(result.differences)} differences")
    return 1 if result.differences else 0


if __name__ == "__main__":
    raise SystemExit(main())
