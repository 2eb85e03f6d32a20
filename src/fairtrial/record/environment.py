"""Where a run happened: the commit, the versions, the machine. Recorded beside the fingerprint, not in it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fairtrial.core.command_line import typed_words
from fairtrial.core.paths import NOT_CODE
from fairtrial.core.regular_files import read_regular
from fairtrial.core.secrets import redact_words

CODE = (":/", *(f":(top,exclude,glob){pattern}" for pattern in NOT_CODE))
"""What git is asked about: everything but what a project writes about itself."""
STAT_WIDTH = 78
_COMMIT = re.compile(r"[0-9a-f]{40,64}")
_CPU_DETAILS = {"cpu family": "family", "model": "model", "stepping": "stepping", "CPU architecture": "architecture",
                "CPU part": "part", "CPU variant": "variant"}  # fmt: skip
CPU_FEATURES = (
    "sse4_2", "avx", "fma", "avx2", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16", "avx512_fp16",
    "avx_vnni", "amx_tile", "amx_bf16", "amx_int8", "asimd", "asimdhp", "asimddp", "bf16", "i8mm", "sve", "sve2",
)  # fmt: skip
"""What kernels are chosen by; the dozens of other flags change no number."""
MOST_COMMAND_CHARACTERS = 4000
PACKAGES = ("fairtrial", "torch", "numpy", "mnist1d", "scikit-learn", "peft", "transformers")


def git_state(folder: Path) -> dict[str, Any]:
    """Commit and dirtiness of the working tree around `folder`; null where there is no repository."""
    commit = git_output(folder, "rev-parse", "HEAD")
    if commit is None:
        return {"git_commit": None, "git_dirty": None, "git_dirty_hash": None}
    changes = (git_output(folder, "diff", "HEAD", "--", *CODE) or "").encode() + _untracked(folder)
    digest = hashlib.sha256(changes).hexdigest() if changes else None
    return {"git_commit": commit.strip(), "git_dirty": bool(changes), "git_dirty_hash": digest}


def _untracked(folder: Path) -> bytes:
    """New files by name and content; large ones, which are data rather than code, by name and size."""
    top = Path((git_output(folder, "rev-parse", "--show-toplevel") or str(folder)).strip())
    names = (git_output(top, "ls-files", "-z", "--others", "--exclude-standard", "--", *CODE) or "").split("\0")
    contents = []
    for path in (top / name for name in names if name):
        with contextlib.suppress(OSError):  # gone again, or not ours to read
            size = path.stat().st_size
            contents += [f"{path.relative_to(top)} {size}".encode(), read_regular(path) if size < 1 << 20 else b""]
    return b"\n".join(contents)


def changed_files(folder: Path, before: str, after: str) -> list[str] | None:
    """The files of code that differ between two commits; None where git cannot say."""
    if not all(_COMMIT.fullmatch(commit) for commit in (before, after)):  # what others wrote is no option of git
        return None
    names = git_output(folder, "diff", "--name-only", "-z", before, after, "--", *CODE)
    return None if names is None else _names_in(names)


def find_commit(folder: Path, name: str) -> str | None:
    """The full hash of a commit, branch or tag; None where the repository around `folder` has no such commit.

    Names come from people and from recorded runs: git is told that none of them is an option.
    """
    if not name or "\0" in name:
        return None
    commit = git_output(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    return commit.strip() if commit else None


@dataclass(frozen=True)
class CodeChanges:
    """How files of a working tree differ from a commit: committed since, not committed, and not known to git at all."""

    commit: str
    stat: str
    """As `git diff --stat` prints it; empty where nothing that git knows has changed."""
    files: Sequence[str]
    untracked: Sequence[str]

    @property
    def any(self) -> bool:
        return bool(self.files or self.untracked)


def code_changes(folder: Path, commit: str, paths: Sequence[str] = ()) -> CodeChanges | None:
    """What changed since a commit, below some paths or in all code of the repository; None where git cannot say."""
    if not _COMMIT.fullmatch(commit):
        return None
    where = tuple(paths) or CODE
    stat = git_output(folder, "diff", "--no-ext-diff", f"--stat={STAT_WIDTH}", commit, "--", *where)
    names = git_output(folder, "diff", "--no-ext-diff", "--name-only", "-z", commit, "--", *where)
    new = git_output(folder, "ls-files", "-z", "--others", "--exclude-standard", "--", *where)
    if stat is None or names is None or new is None:
        return None
    return CodeChanges(commit, stat.rstrip(), _names_in(names), _names_in(new))


def has_files(folder: Path, commit: str, path: str) -> bool:
    """Whether the working tree or the commit has files below a path: one that is misspelled never changes."""
    known = git_output(folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", path)
    return bool(known) or bool(git_output(folder, "diff", "--no-ext-diff", "--name-only", "-z", commit, "--", path))


def _names_in(listed: str) -> list[str]:
    return [name for name in listed.split("\0") if name]


def git_output(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],  # noqa: S607
            capture_output=True,
            text=True,
            errors="replace",
            timeout=20,
            check=False,
        )
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def machine(packages: Iterable[str] = PACKAGES) -> dict[str, Any]:
    """What could make another machine give other numbers or times."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "hostname": platform.node(),
        **processor(),
        "cpu_count": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "gpu": None if not Path("/dev/nvidia0").exists() else "nvidia",
        "versions": {name: _version(name) for name in packages},
        "executable": sys.executable,
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def cpu_name() -> str | None:
    return _first_core().get("model name") or platform.processor() or None


def processor() -> dict[str, Any]:
    """The processor in enough detail to tell two apart that go by the same name, as in `AMD EPYC`.

    Code that is compiled for several instruction sets rounds differently on each: the same seed gives other bits.
    """
    core = _first_core()
    parts = [core.get("vendor_id") or core.get("CPU implementer")]
    parts += [f"{word} {core[key]}" for key, word in _CPU_DETAILS.items() if key in core]
    known = {*(core.get("flags") or core.get("Features") or "").split()}
    return {
        "cpu": cpu_name(),
        "cpu_model": " ".join(part for part in parts if part) or None,
        "cpu_features": [name for name in CPU_FEATURES if name in known] if known else None,
    }


def _first_core() -> dict[str, str]:
    """What the system says about the first core; machines with hundreds of them repeat it for each."""
    try:
        lines = Path("/proc/cpuinfo").read_text().partition("\n\n")[0].splitlines()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in lines)
    return {key.strip(): value.strip() for key, _, value in pairs}


def torch_instruction_set() -> str | None:
    """The instruction set that torch's kernels were chosen for, such as AVX512; None where torch is not loaded."""
    torch = sys.modules.get("torch")
    try:
        return str(torch.backends.cpu.get_cpu_capability()) if torch else None
    except (AttributeError, RuntimeError):  # a torch that is older, or half imported
        return None


def recorded_command_line() -> list[str]:
    """The command line of this process, without secrets: of `fairtrial`, or of the script that uses it."""
    return _shortened(redact_words(typed_words()))


def _shortened(words: Sequence[str]) -> list[str]:
    """Every run of a study holds the command line, so one that lists thousands of runs is cut."""
    kept, room = list[str](), MOST_COMMAND_CHARACTERS
    for number, word in enumerate(words):
        room -= len(word)
        if room < 0:
            return [*kept, f"… and {len(words) - number} more"]
        kept.append(word)
    return kept


def surroundings(folder: Path) -> dict[str, Any]:
    """The commit, the machine and the command line, as every run records them."""
    return {
        **git_state(folder),
        **machine(),
        "torch_instruction_set": torch_instruction_set(),
        "command_line": recorded_command_line(),
    }


def of_this_machine(environment: Mapping[str, Any]) -> dict[str, Any]:
    """What a run records of its surroundings: those of its launcher, with the machine that the run itself is on."""
    if environment.get("hostname") in (None, platform.node()):
        return dict(environment)
    return {**environment, **machine()}
