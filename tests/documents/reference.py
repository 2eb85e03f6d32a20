"""Which command lines the reference documents contain: those that were written down, and those found in the files."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

WRITTEN_DOWN = Path(__file__).parent / "lines.json"
"""Document → its command lines, literally. Programs that a document pastes into a shell are cut after their first line."""
FOLDER = Path(__file__).resolve().parents[3] / "shared" / "reference"
_FENCED = re.compile(r"^[ ]*```bash\n(.*?)^[ ]*```", re.DOTALL | re.MULTILINE)
_INLINE = {"002": re.compile(r"`((?:uv run|modal) [^`]+)`"), "003": re.compile(r"(pytest -q(?: tests/\S+\.py)*)")}
_HEADS_OF_LISTS = ("Options:", "Commands:")


def written_down() -> dict[str, list[str]]:
    found: dict[str, list[str]] = json.loads(WRITTEN_DOWN.read_text(encoding="utf-8"))
    return found


def found_in(folder: Path) -> dict[str, list[str]]:
    return {path.name[:3]: list(dict.fromkeys(_lines(path))) for path in sorted(folder.glob("[0-9]*.txt"))}


def _lines(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    for block in _FENCED.findall(text):
        yield from _commands(block)
    if inline := _INLINE.get(path.name[:3]):
        yield from (each.strip() for each in inline.findall(text))


def _commands(block: str) -> Iterator[str]:
    """The commands of a fenced block, each on one line, without comments and without the lists of a usage text."""
    rows = re.sub(r"\s*\\\n\s*", " ", block).splitlines()
    while rows:
        row = rows.pop(0).strip()
        if row in _HEADS_OF_LISTS:
            return
        if not row or row.startswith("#"):
            continue
        program: list[str] = []
        while not _is_complete(" ".join([row, *program])):
            program.append(rows.pop(0).strip())
        yield row + f'{program[0]} …"' if program else row


def _is_complete(text: str) -> bool:
    try:
        shlex.split(text)
    except ValueError:
        return False
    return True


if __name__ == "__main__":
    WRITTEN_DOWN.write_text(json.dumps(found_in(FOLDER), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
