"""Read metrics from printed output by patterns such as `step {step:int}: loss {loss:float}`, and propose patterns.

Carriage returns of progress bars and escape codes of colors are removed first.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fairtrial.core.errors import UserError
from fairtrial.core.untrusted import open_file
from fairtrial.readers.contract import Cursor, SourceFile, SourceRun, clear_errors
from fairtrial.readers.points import PointCollector, counted

LONGEST_LINE = 2_000
_PIECE_BYTES = 1 << 20
_FLOAT = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|NaN|inf|Infinity|infinity)"
_KINDS = {"int": r"[-+]?\d[\d,]*", "float": _FLOAT, "": _FLOAT, "any": r"\S+?"}
_FIELD = re.compile(r"\{([A-Za-z_][\w./-]*)?(?::(\w+))?\}")
_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
STEP_NAMES = ("step", "global_step", "iter", "iteration", "it", "update", "epoch", "timesteps", "total_timesteps")
SKIP = "_"


@dataclass(frozen=True)
class LinePattern:
    """A pattern as the user typed it (`text`), compiled to a regular expression."""

    text: str
    regex: re.Pattern[str]
    names: tuple[str, ...]

    @property
    def metrics(self) -> tuple[str, ...]:
        return tuple(name for name in self.names if name not in ("step", SKIP))


def compile_pattern(text: str) -> LinePattern:
    """Compile a pattern. Raises UserError if it has no metric, an unknown type, or a duplicate name."""
    parts, names, position = [], [], 0
    for match in _FIELD.finditer(text):
        parts.append(_literal(text[position : match.start()]))
        name, kind = match[1] or SKIP, match[2] or ""
        if kind not in _KINDS:
            raise UserError(f"the pattern '{text}' has the unknown type '{kind}'", hint="Use int, float or any.")
        if name in names and name != SKIP:
            raise UserError(f"the pattern '{text}' has the name '{name}' twice")
        names.append(name)
        parts.append(f"({_KINDS['any' if name == SKIP and not kind else kind]})")
        position = match.end()
    parts.append(_literal(text[position:]))
    pattern = LinePattern(text, re.compile("".join(parts)), tuple(names))
    if not pattern.metrics:
        raise UserError(
            f"the pattern '{text}' has no metric", hint="Write, for example: step {step:int}: loss {loss:float}"
        )
    return pattern


def _literal(text: str) -> str:
    """Escape literal text, but let whitespace match any amount of whitespace, because programs pad their numbers."""
    return r"\s*".join(re.escape(part) for part in re.split(r"\s+", text))


class StdoutReader:
    """A file of printed output is one run. It needs patterns from the user, so `recognize` never matches."""

    name = "stdout"
    title = "printed output, by patterns"

    def __init__(self, patterns: Sequence[str]) -> None:
        self.patterns = [compile_pattern(text) for text in patterns]

    def recognize(self, place: Path) -> str | None:  # noqa: ARG002 — the contract gives it
        return None

    @clear_errors
    def read(self, place: Path, since: Mapping[str, Cursor] | None = None) -> Iterator[SourceRun]:
        """Yield the one run of the file. Text after the last line ending waits for the next read."""
        run_id = place.name
        cursor = (since or {}).get(run_id)
        inode = place.stat().st_ino if place.exists() else 0
        if cursor is not None and (cursor["inode"] != inode or place.stat().st_size < cursor["offset"]):
            cursor = None
        offset = int(cursor["offset"]) if cursor else 0
        points = PointCollector(str(place))
        state = _Steps(cursor["step"] if cursor else None)
        lines = 0
        for line, end in _lines(place, offset):
            offset = end
            lines += self._take(line, points, state)
        notes = []
        if not lines and cursor is None:
            notes.append("no line matches " + " or ".join(f"'{pattern.text}'" for pattern in self.patterns))
        if state.rewound:
            notes.append("steps went backward: points that were printed again were replaced")
        yield SourceRun(
            id=run_id,
            name=run_id,
            series=points.series(),
            files=(SourceFile(place, offset),),
            notes=tuple(notes),
            cursor={"offset": offset, "inode": inode, "step": state.step},
            continues=cursor is not None,
            rewound=state.rewound if cursor else {},
        )

    def _take(self, line: str, points: PointCollector, state: _Steps) -> bool:
        matched = False
        for pattern in self.patterns:
            if (match := pattern.regex.search(line)) is None:
                continue
            matched = True
            fields = dict(zip(pattern.names, match.groups(), strict=True))
            if "step" in fields:
                state.step = _number(fields["step"])
            elif state.step is None:
                state.counted += 1
            step = state.step if state.step is not None else state.counted
            for metric in pattern.metrics:
                last = points.last_step(metric)
                if last is not None and step <= last:
                    points.rewind(metric, step)
                    if step < last:
                        state.rewound[metric] = min(step, state.rewound.get(metric, step))
                points.add(metric, step, _number(fields[metric]))
        return matched


class _Steps:
    """The last printed step, which applies to lines without one. If no step was printed, lines are counted."""

    def __init__(self, step: float | None) -> None:
        self.step = step
        self.counted = 0
        self.rewound: dict[str, float] = {}


def _number(text: str) -> float:
    plain = text.replace(",", "")
    if re.fullmatch(r"[-+]?\d{1,18}", plain):
        return int(plain)
    return float(plain)


def _lines(path: Path, offset: int) -> Iterator[tuple[str, int]]:
    """Yield each line without escape codes, and its end offset in the file. A carriage return also ends a line."""
    try:
        file = open_file(path)
    except FileNotFoundError:
        raise UserError(f"there is no file {path}") from None
    with file:
        file.seek(offset)
        rest = b""
        while piece := file.read(_PIECE_BYTES):
            parts = re.split(rb"(?<=[\r\n])", rest + piece)
            rest = parts.pop()
            for part in parts:
                offset += len(part)
                yield _clean(part), offset
            if len(rest) > _PIECE_BYTES:  # too long to be a line: drop it
                offset, rest = offset + len(rest), b""


def _clean(line: bytes) -> str:
    return _ANSI.sub("", line[:LONGEST_LINE].decode(errors="replace")).strip()


# Proposals


@dataclass(frozen=True)
class Proposal:
    """A proposed pattern, the number of lines that match it, and an example."""

    pattern: str
    lines: int
    example: str


_NAMED_NUMBER = re.compile(
    rf"(?P<name>[A-Za-z_][\w./-]*(?: [A-Za-z_][\w./-]*)?)(?P<between>\s*[:=|]\s*|\s+)(?P<number>{_FLOAT})(?![\w.%])"
)
_MOST_SAMPLED_LINES = 20_000
_FEWEST_LINES = 3


def propose_patterns(path: Path, most: int = 3) -> list[Proposal]:
    """Propose patterns for lines that repeat with different numbers, the most frequent first."""
    shapes: Counter[str] = Counter()
    examples: dict[str, str] = {}
    numbers: dict[str, set[str]] = {}
    for sampled, (line, _) in enumerate(_lines(path, 0)):
        if sampled > _MOST_SAMPLED_LINES:
            break
        if (shape := _shape(line)) is not None:
            shapes[shape] += 1
            examples.setdefault(shape, line)
            numbers.setdefault(shape, set()).add(line)
    often = [(shape, count) for shape, count in shapes.most_common() if count >= _FEWEST_LINES]
    varying = [(shape, count) for shape, count in often if len(numbers[shape]) > 1]
    return [Proposal(shape, count, examples[shape]) for shape, count in varying[:most]]


def _shape(line: str) -> str | None:
    """Return a line with its named numbers replaced by fields; None if none of them could be a metric."""
    pieces, position, names = [], 0, []
    for match in _NAMED_NUMBER.finditer(line):
        name = re.sub(r"[^\w/.-]+", "_", match["name"].strip())
        whole = re.fullmatch(r"[-+]?\d+", match["number"]) is not None
        is_step = name.lower() in STEP_NAMES and "step" not in names and whole
        field_name = "step" if is_step else name
        if field_name in names:
            continue
        names.append(field_name)
        pieces += [
            _numbers_skipped(line[position : match.start("number")]),
            f"{{{field_name}:{'int' if is_step else 'float'}}}",
        ]
        position = match.end("number")
    if not [name for name in names if name != "step"]:
        return None
    return "".join(pieces)


def _numbers_skipped(text: str) -> str:
    """Replace unnamed numbers between fields, as in `12/100`, by `{_}`, because they may differ in other lines."""
    return re.sub(r"\S*\d\S*", "{_}", text.replace("{", "(").replace("}", ")"))


def describe(proposals: Iterable[Proposal]) -> list[str]:
    """Format each proposal as one line of text."""
    return [f"'{each.pattern}' matches {counted(each.lines, 'line')}, such as: {each.example}" for each in proposals]
