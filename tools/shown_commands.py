"""Runs the commands that a page of the documentation shows, and writes what they print into the page.

python tools/shown_commands.py docs/start.md docs/howto/*.md

A page is a session in an empty folder. A code block with `title="NAME"` is a file in that folder. A `console` block is
a line `$ fairtrial …` and what it prints on standard output. `tests/documents/test_howto.py` runs the same sessions and
compares what is printed with the page. A comment before a block changes that:

<!-- numbers vary -->          compare the words and not the numbers: other processors give other last digits
<!-- output varies -->         compare the exit code only: times were measured
<!-- exit 3 -->                the command ends with this exit code; `exit 3 or 0` where a measured time decides
<!-- test adds: FLAGS -->      the test appends these flags, which make it short, and compares the exit code only
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

BLOCK = re.compile(
    r"(?P<comments>(?:<!-- [^\n]* -->\n+)*)^```(?P<kind>\w+)(?P<info>[^\n]*)\n(?P<body>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
COMMAND = re.compile(r"\$ ((?:[^\n]*\\\n)*[^\n]*\n)(.*)", re.DOTALL)
NUMBER = re.compile(r"[+−-]?\d[\d.,]*(?:e[+-]?\d+)?")
HOME = "/home/you/work"
"""What stands on a page for the folder in which its commands were run."""


@dataclass(frozen=True)
class ShownFile:
    name: str
    text: str


@dataclass(frozen=True)
class ShownCommand:
    """A command line without the word `fairtrial`, and what the page says that it prints."""

    typed: str
    printed: str
    comments: str
    start: int
    """Where the printed text begins in the page."""

    @property
    def words(self) -> list[str]:
        return shlex.split(self.typed.replace("\\\n", " "))

    @property
    def exit_codes(self) -> set[int]:
        found = re.search(r"<!-- exit (\d+(?: or \d+)*) -->", self.comments)
        return {int(each) for each in found[1].split(" or ")} if found else {0}

    @property
    def test_words(self) -> list[str]:
        """The words as the test runs them: flags that make it short come before `--`, and later flags win."""
        added = shlex.split(self._added)
        place = self.words.index("--") if "--" in self.words else len(self.words)
        return [*self.words[:place], *added, *self.words[place:]]

    @property
    def _added(self) -> str:
        found = re.search(r"<!-- test adds: (.*?) -->", self.comments)
        return found[1] if found else ""

    def agrees(self, printed: str) -> bool:
        """Whether this is what the page says, as far as the page promises it."""
        if self._added or "<!-- output varies -->" in self.comments:
            return True
        if "<!-- numbers vary -->" in self.comments:
            return _without_numbers(printed) == _without_numbers(self.printed)
        return printed == self.printed


def _without_numbers(text: str) -> list[list[str]]:
    return [re.sub(r"[━─═=-]+", "-", NUMBER.sub("0", line)).split() for line in text.splitlines()]


def shown(text: str) -> Iterator[ShownFile | ShownCommand]:
    """The files and commands of a page, in order."""
    for block in BLOCK.finditer(text):
        if title := re.search(r'title="([^"]+)"', block["info"]):
            yield ShownFile(title[1], block["body"])
        elif block["kind"] == "console":
            command = COMMAND.fullmatch(block["body"])
            assert command, f"not a command and its output: {block['body']!r}"
            program, _, typed = command[1].strip().partition(" ")
            assert program == "fairtrial", f"a page can show only fairtrial, not {program}"
            yield ShownCommand(typed, command[2], block["comments"], block.start("body") + command.start(2))


def expanded(words: Sequence[str]) -> list[str]:
    """Patterns replaced by the files that they match in the current folder, as a shell does it."""
    return [each for word in words for each in (sorted(map(str, Path().glob(word))) if "*" in word else []) or [word]]


def tidy(printed: str, folder: Path) -> str:
    """What a page shows of an output: no spaces at ends of lines, and no path of the machine that it was run on."""
    text = printed.replace(str(folder), HOME)
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def refreshed(text: str, folder: Path, run: Callable[[Sequence[str]], tuple[int, str, str]]) -> str:
    """The page with what its commands print now."""
    parts, end = [], 0
    for each in shown(text):
        if isinstance(each, ShownFile):
            (folder / each.name).write_text(each.text)
            continue
        code, printed, errors = run(expanded(each.words))
        if code not in each.exit_codes:
            sys.exit(f"fairtrial {each.typed}: exit code {code}, not {each.exit_codes}\n{printed}{errors}")
        parts += [text[end : each.start], tidy(printed, folder)]
        end = each.start + len(each.printed)
    return "".join([*parts, text[end:]])


def main(names: Sequence[str]) -> int:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FAIRTRIAL_")}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
    for page in map(Path, names):
        with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
            folder = Path(name).resolve()
            environment["FAIRTRIAL_KEY"] = str(folder / ".key.pem")
            text = page.read_text()
            stack.enter_context(contextlib.chdir(folder))

            def run(words: Sequence[str]) -> tuple[int, str, str]:
                print(shlex.join(["fairtrial", *words]), file=sys.stderr)
                done = subprocess.run(
                    [sys.executable, "-m", "fairtrial", *words],
                    env=environment, capture_output=True, text=True, check=False,
                )  # fmt: skip
                return done.returncode, done.stdout, done.stderr

            new = refreshed(text, folder, run)
        if new != text:
            page.write_text(new)
            print(f"wrote: {page}")
    return 0


if __name__ == "__main__":
    sys.exit(main([str(Path(name).resolve()) for name in sys.argv[1:]]))
