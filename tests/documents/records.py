"""One point of a document: what it says, what Fairtrial has for it, and a check that the two agree.

The table of these records is run by `test_documents.py`, printed as docs/documents.md by `tools/make_docs.py`, and
timed at full size by `benchmarks/documented_lines.py`. A record therefore says how a command line is typed in full, and
separately what the test appends to it (`add`) to keep it small.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.documents.desk import Answer, Desk

AS_DOCUMENTED = "as documented"
SPECIFICATION = "commands"
Check = Callable[[Desk], None]
See = str | Callable[[Answer], Any]


@dataclass(frozen=True)
class Item:
    """`document`: 000 to 004, or `commands` for the specification. `theirs`: the line, option, key or file there."""

    document: str
    section: str
    theirs: str
    ours: str
    check: Check
    differs: str = ""
    line: Line | None = None
    """What is timed at full size, where it is a command line of Fairtrial."""
    is_command_line: bool = False

    @property
    def state(self) -> str:
        return f"differs: {self.differs}" if self.differs else AS_DOCUMENTED

    @property
    def name(self) -> str:
        return f"{self.document}-{self.section}-{self.theirs}"


@dataclass(frozen=True)
class Line:
    """A command line as a person types it, the folder it is tried in, and what the test appends."""

    typed: str
    at: str
    add: str = ""
    code: int = 0


# What can be seen in an answer.


def look(answer: Answer, see: See) -> Any:
    """A path into the JSON document such as `results.0.accuracy` (`#` is the length of a list), or a function."""
    if callable(see):
        return see(answer)
    found = answer.json
    for part in see.split(".") if see else []:
        if part == "#":
            found = len(found)
        else:
            assert not isinstance(found, dict) or part in found, f"no '{part}' of '{see}' in {sorted(found)}"
            found = found[int(part)] if isinstance(found, list) else found[part]
    return found


def said(pattern: str) -> Callable[[Answer], Any]:
    """The first group of a pattern in what was printed, or all of it; it must be there."""

    def find(answer: Answer) -> Any:
        found = re.search(pattern, answer.out + answer.err, re.MULTILINE)
        assert found, f"nothing printed fits '{pattern}':\n{answer.shortened}"
        return found[1] if found.groups() else found[0]

    return find


def printed(answer: Answer) -> str:
    return answer.out


def codes(answer: Answer) -> set[str]:
    """Of the cautions in a JSON document."""
    return {caution["code"] for caution in answer.json["cautions"]}


# Items.


def line(
    document: str,
    section: str,
    theirs: str,
    ours: str,
    *,
    at: str,
    add: str = "",
    code: int = 0,
    says: Sequence[str] = (),
    keys: Sequence[str] = (),
    files: Sequence[str] = (),
    differs: str = "",
) -> Item:
    """A command line: its exit code, what it prints, the keys of its JSON document, and the files that it writes."""

    def check(desk: Desk) -> None:
        typed = desk.sized(ours, add)
        answer = desk.run(at, typed)
        assert answer.code == code, f"{typed}: exit code {answer.code}, not {code}\n{answer.shortened}"
        for pattern in says:
            said(pattern)(answer)
        for key in keys:
            look(answer, key)
        missing = [name for name in files if not (desk.folder(at) / name).exists()]
        assert not missing, f"{typed} did not write {missing}"

    return Item(document, section, theirs, f"fairtrial {ours}", check, differs, Line(ours, at, add, code), True)


def field(
    document: str, section: str, theirs: str, typed: str, see: See, *, at: str, ours: str = "", differs: str = ""
) -> Item:
    """One field of what a command prints; by default a key of its JSON document under the documented name."""

    def check(desk: Desk) -> None:
        answer = desk.run(at, typed)
        assert answer.code in (0, 3), f"{typed}: exit code {answer.code}\n{answer.err}"
        look(answer, see)

    return Item(document, section, theirs, ours or _plain(see, theirs), check, differs)


def fields(document: str, section: str, typed: str, names: Sequence[str], *, at: str) -> list[Item]:
    """Keys of one JSON document, an item each."""
    return [field(document, section, f"JSON key `{name}`", typed, name, at=at, ours=f"`{name}`") for name in names]


def option(
    document: str,
    section: str,
    theirs: str,
    base: str,
    given: str,
    see: See,
    *,
    at: str,
    default: str = "",
    becomes: Any = None,
    code: int | None = 0,
    differs: str = "",
) -> Item:
    """An option: with it the result is another one than without it, and its documented default is the one in --help-all."""

    def check(desk: Desk) -> None:
        before, after = desk.run(at, base), desk.run(at, f"{base} {given}")
        assert code is None or after.code == code, f"{base} {given}: exit code {after.code}\n{after.shortened}"
        was, now = look(before, see), look(after, see)
        assert was != now, f"'{given}' changes nothing of '{base}': still {now!r}"
        if becomes is not None:
            assert now == becomes, f"'{given}' gives {now!r}, not {becomes!r}"
        if default:
            shows_default(desk, at, base, given.split("=")[0].split()[0], default)

    return Item(document, section, theirs, f"`{given}`", check, differs)


def suite(document: str, section: str, theirs: str) -> Item:
    """A line that runs a project's own tests: ours are `make test`, which is what CI runs, and contain this very item."""

    def check(desk: Desk) -> None:
        root = Path(__file__).parent.parent.parent
        assert "-m pytest" in read(root / "Makefile") and "make test" in read(root / ".ci" / "run")

    return Item(document, section, theirs, "make test", check, "the tests are our own", is_command_line=True)


def point(document: str, section: str, theirs: str, ours: str, check: Check, *, differs: str = "") -> Item:
    """Anything that takes a few steps to show."""
    return Item(document, section, theirs, ours, check, differs)


def shows_default(desk: Desk, at: str, base: str, flag: str, default: str) -> None:
    words = base.split()
    verb = words[:2] if words[0] in ("train", "launch", "bench", "profile", "sweep", "research", "runs") else words[:1]
    text = " ".join(desk.run(at, " ".join([*verb, "--help-all"])).out.split())
    found = re.search(rf"{re.escape(flag)} .*?\[default: ([^\]]+)\]", text)
    assert found and found[1].split(";")[0] == default, f"{flag}: default {found and found[1]}, not {default}"


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _plain(see: See, theirs: str) -> str:
    return f"`{see}`" if isinstance(see, str) else theirs
