"""Where documented command lines are tried: folders with a store each; a line is run once and its answer kept."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Call = Callable[[Sequence[str]], "Answer"]
Prepare = Callable[[Path], None]
SURROUNDINGS = ("FAIRTRIAL_STORE", "FAIRTRIAL_RUN_DIR", "WANDB_API_KEY")


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        try:
            return json.loads(self.out)
        except ValueError:
            raise AssertionError(f"not a JSON document: {self.shortened}") from None

    @property
    def shortened(self) -> str:
        """For messages of tests."""
        return f"{self.out[:1500]}{self.err[:1500]}"


class Desk:
    """`call` runs the program; `shorten` says which lines are shortened by what their records add.

    `furnish` puts into every new folder what all of them share. `scripts`: folders whose lines build on each other, with
    these lines in order, each with what is added to it; none is run before those that stand above it.
    """

    def __init__(
        self,
        root: Path,
        prepare: Mapping[str, Prepare],
        call: Call,
        *,
        shorten: Callable[[str], bool] = lambda _: True,
        furnish: Prepare | None = None,
        scripts: Mapping[str, Sequence[tuple[str, str]]] | None = None,
    ) -> None:
        self.root = root
        self.call = call
        self.shorten = shorten
        self._furnish = furnish
        self._scripts = scripts or {}
        self._prepare = prepare
        self._answers: dict[tuple[str, str], Answer] = {}

    def folder(self, at: str) -> Path:
        """Made and filled the first time that it is asked for."""
        folder = self.root / at
        if not folder.exists():
            folder.mkdir(parents=True)
            if self._furnish:
                self._furnish(folder)
            with self._in(folder):
                self._prepare[at](folder)
        return folder

    def sized(self, typed: str, add: str) -> str:
        """The line as it is run here; what is added goes before a pipe or a redirection."""
        if not (add and self.shorten(typed)):
            return typed
        for sign in (" | ", " > ", " -- "):
            if sign in typed:
                head, _, tail = typed.partition(sign)
                return f"{head} {add}{sign}{tail}"
        return f"{typed} {add}"

    def run(self, at: str, typed: str) -> Answer:
        """The answer of a line, from the first time that it was run in this folder."""
        for earlier in itertools.takewhile(lambda each: each != typed, self._script(at)):
            if (at, earlier) not in self._answers:
                self._answers[at, earlier] = self.again(at, earlier)
        if (at, typed) not in self._answers:
            self._answers[at, typed] = self.again(at, typed)
        return self._answers[at, typed]

    def _script(self, at: str) -> list[str]:
        return [self.sized(typed, add) for typed, add in self._scripts.get(at, ())]

    def again(self, at: str, typed: str) -> Answer:
        """Run a line although it has been run before. `> FILE` and `| jq .KEY` work as in a shell."""
        words, target, key = _split(typed)
        with self._in(self.folder(at)):
            answer = self.call(words)
            if target:
                Path(target).write_text(answer.out, encoding="utf-8")
            return Answer(answer.code, f"{answer.json[key]}\n", answer.err) if key else answer

    @contextlib.contextmanager
    def _in(self, folder: Path) -> Iterator[None]:
        kept = {name: os.environ.pop(name) for name in SURROUNDINGS if name in os.environ}
        try:
            with contextlib.chdir(folder):
                yield
        finally:
            os.environ.update(kept)


def _split(typed: str) -> tuple[list[str], str | None, str | None]:
    words = shlex.split(typed)
    if ">" in words:
        place = words.index(">")
        return words[:place], words[place + 1], None
    if "|" in words:
        place = words.index("|")
        program, key = words[place + 1 :]
        assert program == "jq"
        return words[:place], None, key.removeprefix(".")
    return words, None, None
