"""Completion in real shells: bash, zsh and fish run in a pseudo-terminal, TAB is pressed, and the line is read."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fairtrial.cli._completion_shells import SHELLS

ROOT = Path(__file__).parent.parent.parent
START = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config", "-i"],
}
SETUP = {
    "bash": "PS1='READY>'; bind 'set bell-style none' 'set enable-bracketed-paste off' 'set show-all-if-ambiguous on'\n",
    "zsh": "PS1='READY>'; unsetopt zle_bracketed_paste beep; setopt no_list_beep; unset zle_bracketed_paste\n",
    "fish": "function fish_prompt; echo -n 'READY>'; end; set -g fish_greeting; set -g fish_autosuggestion_enabled 0\n",
}
ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[()][A-Z0-9]|[=>78cM])|\x0f")
Press = Callable[[str], list[str]]


class Terminal:
    """A shell in a pseudo-terminal."""

    def __init__(self, words: list[str], environment: dict[str, str], folder: Path) -> None:
        self.pid, self.file = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execvpe(words[0], words, environment)

    def send(self, text: str) -> None:
        os.write(self.file, text.encode())

    def read_until(self, pattern: str, seconds: float = 20.0) -> str:
        seen, end = "", time.monotonic() + seconds
        while time.monotonic() < end:
            if select.select([self.file], [], [], 0.05)[0]:
                seen += os.read(self.file, 65536).decode(errors="replace")
                if "\x1b[6n" in seen or "\x1b[c" in seen:  # a shell asks what the terminal can do
                    self.send("\x1b[1;1R" if "\x1b[6n" in seen else "\x1b[?62c")
                    seen = seen.replace("\x1b[6n", "").replace("\x1b[c", "")
                if re.search(pattern, ESCAPES.sub("", seen)):
                    return ESCAPES.sub("", seen)
        raise AssertionError(f"no {pattern!r} in {seen!r}")

    def close(self) -> None:
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)
        os.close(self.file)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store, a study file, and the program under its own name."""
    folder = tmp_path_factory.mktemp("shells")
    for study, runs in {"demo": ["base.seed1", "new.seed1"], "my study": ["long name.seed1", "lr=0.1+x.seed1"]}.items():
        for run in runs:
            (folder / "runs" / study / run).mkdir(parents=True)
    (folder / "runs" / ".profiles" / "before").mkdir(parents=True)
    (folder / "my plan.yaml").write_text("study: x\n")
    (folder / "notes.txt").write_text("")
    program = folder / "bin" / "fairtrial"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\n{sys.executable} -m fairtrial "$@"\necho >> {folder}/answered\n')
    program.chmod(0o755)
    return folder


@pytest.fixture(scope="module", params=["bash", "zsh", "fish"])
def press(request: pytest.FixtureRequest, place: Path) -> Iterator[Press]:
    """Types a line, presses TAB, and returns the words that the shell would pass to the program."""
    shell: str = request.param
    if shutil.which(shell) is None:
        if os.environ.get("CI"):
            pytest.fail(f"{shell} is not installed")
        pytest.skip(f"{shell} is not installed")
    environment = {
        "PATH": f"{place / 'bin'}:{os.environ['PATH']}", "HOME": str(place), "TERM": "xterm", "LANG": "C.UTF-8",
        "PYTHONPATH": str(ROOT / "src"), "XDG_CACHE_HOME": str(place / "cache"), "COLUMNS": "200",
    }  # fmt: skip
    terminal = Terminal(START[shell], environment, place)
    terminal.send(SETUP[shell])
    terminal.send(f"{SHELLS[shell].load}; echo LOADED\n".replace("LOADED", "LOA''DED"))
    terminal.read_until("LOADED")

    def type_and_press(line: str) -> list[str]:
        """`|` in the line presses TAB. The line is then run with `printf` in place of the program."""
        for part in re.split(r"(\|)", line):
            if part != "|":
                terminal.send(part)
                continue
            before = _answers(place)
            terminal.send("\t")
            wait_until(lambda: _answers(place) > before)  # noqa: B023
            time.sleep(0.1)  # the shell still has to insert the answer
        terminal.send("\x01" + "printf '<%s>' ARGS \x05; echo E''ND\n")
        seen = terminal.read_until(r"END[\r\n]")
        return re.findall(r"<([^<>]*)>", seen[seen.rindex("<ARGS>") :])[2:]

    yield type_and_press
    terminal.close()


def _answers(place: Path) -> int:
    """How often the program has answered."""
    file = place / "answered"
    return file.stat().st_size if file.exists() else 0


def wait_until(is_true: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < end, "the shell did not ask the program"
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("fairtrial train cla|--mod|tr|", ["train", "classify", "--model", "transformer"]),
        ("fairtrial analyze my|--candidate lo|", ["analyze", "my study", "--candidate", "long name"]),
        ("fairtrial variance demo:n|", ["variance", "demo:new"]),
        ("fairtrial variance my\\ study:lo|", ["variance", "my study:long name"]),
        ("fairtrial variance 'my study:lo|", ["variance", "my study:long name"]),
        ("fairtrial runs show my|lr|", ["runs", "show", "my study/lr=0.1+x.seed1"]),
        ("fairtrial runs list --study=my|", ["runs", "list", "--study=my study"]),
        ("fairtrial launch my|", ["launch", "my plan.yaml"]),
        ("fairtrial launch fake --on sl|", ["launch", "fake", "--on", "slurm"]),
        ("fairtrial profile show b|", ["profile", "show", "before"]),
        ("fairtrial analyze nothing-like-this|", ["analyze", "nothing-like-this"]),
    ],
)
def test_tab_completes_a_real_line(press: Press, line: str, words: list[str]) -> None:
    assert press(line) == words
