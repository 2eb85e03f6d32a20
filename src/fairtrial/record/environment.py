"""The environment of a run: commit, package versions and machine. It is recorded but not part of the fingerprint."""

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
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fairtrial.core.command_line import typed_words
from fairtrial.core.paths import NOT_CODE
from fairtrial.core.regular_files import read_regular
from fairtrial.core.secrets import redact_words

CODE = (":/", *(f":(top,exclude,glob){pattern}" for pattern in NOT_CODE))
"""The git pathspecs of code: everything except files that Fairtrial writes about a project."""
STAT_WIDTH = 78
_COMMIT = re.compile(r"[0-9a-f]{40,64}")
_CPU_DETAILS = {"cpu family": "family", "model": "model", "stepping": "stepping", "CPU architecture": "architecture",
                "CPU part": "part", "CPU variant": "variant"}  # fmt: skip
CPU_FEATURES = (
    "sse4_2", "avx", "fma", "avx2", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16", "avx512_fp16",
    "avx_vnni", "amx_tile", "amx_bf16", "amx_int8", "asimd", "asimdhp", "asimddp", "bf16", "i8mm", "sve", "sve2",
)  # fmt: skip
"""CPU flags by which libraries select kernels. Other flags do not affect numerical results."""
MOST_COMMAND_CHARACTERS = 4000
PACKAGES = ("fairtrial", "torch", "numpy", "mnist1d", "scikit-learn", "peft", "transformers")


def git_state(folder: Path) -> dict[str, Any]:
    """Return the commit and the uncommitted changes of the working tree around `folder`; null without a repository."""
    commit = git_output(folder, "rev-parse", "HEAD")
    if commit is None:
        return {"git_commit": None, "git_dirty": None, "git_dirty_hash": None}
    changes = (git_output(folder, "diff", "HEAD", "--", *CODE) or "").encode() + _untracked(folder)
    digest = hashlib.sha256(changes).hexdigest() if changes else None
    return {"git_commit": commit.strip(), "git_dirty": bool(changes), "git_dirty_hash": digest}


def _untracked(folder: Path) -> bytes:
    """Return untracked files by name and content; large ones, which are probably data, by name and size."""
    top = Path((git_output(folder, "rev-parse", "--show-toplevel") or str(folder)).strip())
    names = (git_output(top, "ls-files", "-z", "--others", "--exclude-standard", "--", *CODE) or "").split("\0")
    contents = []
    for path in (top / name for name in names if name):
        with contextlib.suppress(OSError):  # deleted meanwhile, or not readable
            size = path.stat().st_size
            contents += [f"{path.relative_to(top)} {size}".encode(), read_regular(path) if size < 1 << 20 else b""]
    return b"\n".join(contents)


def changed_files(folder: Path, before: str, after: str) -> list[str] | None:
    """Return the code files that differ between two commits, or None if git cannot determine them."""
    if not all(_COMMIT.fullmatch(commit) for commit in (before, after)):  # untrusted text must not be a git option
        return None
    names = git_output(folder, "diff", "--name-only", "-z", before, after, "--", *CODE)
    return None if names is None else _names_in(names)


def find_commit(folder: Path, name: str) -> str | None:
    """Return the full hash of a commit, branch or tag, or None if the repository around `folder` does not have it.

    Names come from users and from recorded runs, so `--end-of-options` prevents git from parsing them as options.
    """
    if not name or "\0" in name:
        return None
    commit = git_output(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    return commit.strip() if commit else None


@dataclass(frozen=True)
class CodeChanges:
    """Differences between a working tree and a commit: later commits, uncommitted changes and untracked files."""

    commit: str
    stat: str
    """The output of `git diff --stat`; empty if no tracked file has changed."""
    files: Sequence[str]
    untracked: Sequence[str]

    @property
    def any(self) -> bool:
        return bool(self.files or self.untracked)


def code_changes(folder: Path, commit: str, paths: Sequence[str] = ()) -> CodeChanges | None:
    """Return the changes since a commit in some paths or in all code, or None if git cannot determine them."""
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
    """Return whether the working tree or the commit has files below a path. A misspelled path has none."""
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
    """Return properties of this machine that can affect numerical results or timings."""
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


@cache
def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def cpu_name() -> str | None:
    return _first_core().get("model name") or platform.processor() or None


def processor() -> dict[str, Any]:
    """Return the processor in enough detail to distinguish models with the same name, such as `AMD EPYC`.

    Code compiled for several instruction sets rounds differently on each, so the same seed gives different bits.
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
    """Return /proc/cpuinfo of the first core. The file repeats it for every core."""
    try:
        lines = Path("/proc/cpuinfo").read_text().partition("\n\n")[0].splitlines()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in lines)
    return {key.strip(): value.strip() for key, _, value in pairs}


def torch_instruction_set() -> str | None:
    """Return the instruction set of torch's CPU kernels, such as AVX512, or None if torch is not loaded."""
    torch = sys.modules.get("torch")
    try:
        return str(torch.backends.cpu.get_cpu_capability()) if torch else None
    except (AttributeError, RuntimeError):  # an older torch, or one that is partially imported
        return None


def recorded_command_line() -> list[str]:
    """Return the command line of this process (`fairtrial` or the user's script), without secrets."""
    return _shortened(redact_words(typed_words()))


def _shortened(words: Sequence[str]) -> list[str]:
    """Truncate a command line that lists thousands of runs, because every run of a study stores it."""
    kept, room = list[str](), MOST_COMMAND_CHARACTERS
    for number, word in enumerate(words):
        room -= len(word)
        if room < 0:
            return [*kept, f"… and {len(words) - number} more"]
        kept.append(word)
    return kept


def surroundings(folder: Path) -> dict[str, Any]:
    """Return the commit, the machine and the command line, which every run records."""
    return {
        **git_state(folder),
        **machine(),
        "torch_instruction_set": torch_instruction_set(),
        "command_line": recorded_command_line(),
    }


def of_this_machine(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Return the environment to record for a run: that of its launcher, with the machine on which the run executes."""
    if environment.get("hostname") in (None, platform.node()):
        return dict(environment)
    return {**environment, **machine()}
