"""The table that all commands print: no borders, and never wider than the terminal.

A number or a name is never cut. If a table is too wide, it first omits the columns that the command marked as less
important, then puts the first column on a line of its own, and at last prints one line per cell.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from fairtrial.core.terminal import visible

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.text import Text

GAP = "  "
INDENT = "  "
LEAST_WRAPPED = 24
"""Narrowest column, in characters, in which sentences are still readable when they wrap."""


@dataclass(frozen=True)
class Column:
    """A column and what may happen to it on a narrow terminal."""

    heading: str
    left: bool = False
    """Aligned to the left: names and sentences. Numbers are aligned to the right."""
    omit: int = 0
    """Columns with the largest number are omitted first; 0 means never."""
    wraps: bool = False
    """Whether cells are sentences that may wrap at spaces."""


@dataclass
class PlainTable:
    """Rows in columns. The first column has the names of the rows."""

    columns: Sequence[Column]
    show_header: bool = True
    indent: str = ""
    whole_names: bool = False
    """Whether a name that is wider than the terminal stays on one line, which the terminal then wraps.

    Such a name can be copied; the table must be printed with `crop=False`.
    """
    _rows: list[tuple[list[str | Text], str]] = field(default_factory=list)
    _cell_widths: list[int] = field(default_factory=list)
    """Width of the widest cell of each column."""

    def add_row(self, *cells: str | Text, style: str = "") -> None:
        if len(cells) != len(self.columns):
            raise ValueError(f"{len(cells)} cells for {len(self.columns)} columns")
        row = [_one_line(cell) for cell in cells]
        self._rows.append((row, style))
        known = self._cell_widths or [0] * len(row)
        self._cell_widths = [max(widest, _cell_width(cell)) for widest, cell in zip(known, row, strict=True)]

    def shows(self, heading: str, width: int) -> bool:
        """Return whether a table of this width has the column, so that a footnote on it can be omitted with it."""
        return any(self.columns[number].heading == heading for number in self._layout(width)[0])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.columns and (self._rows or self.show_header):
            yield from self._lines(console, options.max_width)

    def _lines(self, console: Console, width: int) -> Iterator[Text]:
        numbers, stacked = self._layout(width)
        if not stacked:
            yield from self._table_lines(console, numbers, width, self.indent)
        elif self._fits(numbers[1:], width - len(self.indent + INDENT)):
            yield from self._stacked_lines(console, numbers, width)
        else:
            yield from self._record_lines(console, numbers, width)

    def _layout(self, width: int) -> tuple[list[int], bool]:
        """Return the numbers of the columns to print, and whether the first one needs a line of its own."""
        kept = list(range(len(self.columns)))
        space = width - len(self.indent)
        for number in sorted(kept, key=lambda each: (-self.columns[each].omit, -each)):
            if self._fits(kept, space):
                return kept, False
            if self.columns[number].omit:
                kept = [each for each in kept if each != number]
        return kept, not self._fits(kept, space)

    def _fits(self, numbers: Sequence[int], space: int) -> bool:
        widths = [
            min(self._width(number), LEAST_WRAPPED) if self.columns[number].wraps else self._width(number)
            for number in numbers
        ]
        return sum(widths) + len(GAP) * (len(widths) - 1) <= space

    def _width(self, number: int) -> int:
        heading = _cell_width(self.columns[number].heading) if self.show_header else 0
        return max(heading, self._cell_widths[number] if self._rows else 0)

    def _widths(self, numbers: Sequence[int], space: int) -> list[int]:
        """Return the widths of columns that fit. Those that wrap share what the others leave."""
        widths = {number: self._width(number) for number in numbers}
        wrapping = [number for number in numbers if self.columns[number].wraps]
        rest = space - len(GAP) * (len(numbers) - 1) - sum(widths[each] for each in numbers if each not in wrapping)
        for place, number in enumerate(wrapping):
            widths[number] = min(widths[number], max(1, rest // (len(wrapping) - place)))
            rest -= widths[number]
        return list(widths.values())

    def _table_lines(self, console: Console, numbers: Sequence[int], width: int, indent: str) -> Iterator[Text]:
        widths = self._widths(numbers, width - len(indent))
        if self.show_header:
            yield from self._row_lines(console, self._headings(), "bold", numbers, widths, indent)
        for cells, style in self._rows:
            yield from self._row_lines(console, cells, style, numbers, widths, indent)

    def _stacked_lines(self, console: Console, numbers: Sequence[int], width: int) -> Iterator[Text]:
        """Print each name on a line of its own, and the other cells below it."""
        name, others = numbers[0], numbers[1:]
        below = self.indent + INDENT
        widths = self._widths(others, width - len(below))
        header = [(self._headings(), "bold")] if self.show_header else []
        for cells, style in [*header, *self._rows]:
            yield from self._name_lines(console, cells[name], style, width)
            yield from self._row_lines(console, cells, style, others, widths, below)

    def _record_lines(self, console: Console, numbers: Sequence[int], width: int) -> Iterator[Text]:
        """Print each cell on a line of its own, after its heading."""
        name, others = numbers[0], numbers[1:]
        below = self.indent + INDENT
        headings = max(_cell_width(self.columns[number].heading) for number in others)
        for cells, style in self._rows:
            first = f"{self.columns[name].heading} ".lstrip()
            yield from _folded(console, cells[name], style, width, self.indent + first)
            for number in others:
                if _cell_width(cells[number]):
                    heading = self.columns[number].heading
                    start = below + (heading.ljust(headings) + GAP if heading else "")
                    yield from _folded(console, cells[number], style, width, start)

    def _row_lines(
        self, console: Console, cells: Sequence[str | Text], style: str, numbers: Sequence[int],
        widths: Sequence[int], indent: str,
    ) -> Iterator[Text]:  # fmt: skip
        from rich.text import Text

        wrapped = [_wrapped(console, cells[number], size) for number, size in zip(numbers, widths, strict=True)]
        for place in range(max(map(len, wrapped), default=0)):
            line = Text(indent, style=style)
            for number, lines, size in zip(numbers, wrapped, widths, strict=True):
                cell = lines[place] if place < len(lines) else Text()
                space = " " * (size - cell.cell_len)
                line.append_text(
                    Text.assemble(cell, space) if self.columns[number].left else Text.assemble(space, cell)
                )
                line.append(GAP)
            line.rstrip()
            yield line

    def _name_lines(self, console: Console, name: str | Text, style: str, width: int) -> Iterator[Text]:
        from rich.text import Text

        if self.whole_names:
            yield Text.assemble(self.indent, name, style=style, no_wrap=True, overflow="ignore")
        else:
            yield from _folded(console, name, style, width, self.indent)

    def _headings(self) -> list[str | Text]:
        return [column.heading for column in self.columns]


def plain_table(*headings: str | Column, indent: str = "") -> PlainTable:
    """Return a table: the first column left-aligned, the others right-aligned unless a `Column` says otherwise."""
    columns = [Column(each, left=not number) if isinstance(each, str) else each for number, each in enumerate(headings)]
    return PlainTable([replace(each, heading=visible(each.heading)) for each in columns], indent=indent)


def shortened(name: str, width: int, *, tail: int = 0) -> str:
    """Return a name of at most `width` characters, shortened in the middle; the last `tail` characters are kept.

    Only for lines that are redrawn: what a person may want to copy is never shortened.
    """
    if len(name) <= width:
        return name
    end = max(tail, (width - 1) // 2) if tail < width - 1 else width - 1
    return f"{name[: width - 1 - end]}…{name[len(name) - end :]}"


def _one_line(cell: str | Text) -> str | Text:
    """Return a cell whose width is the number of columns it takes on the screen: no newline, tab or control."""
    return visible(cell.replace("\n", "\\n").replace("\t", " ")) if isinstance(cell, str) else cell


def _cell_width(cell: str | Text) -> int:
    from rich.cells import cell_len

    return cell_len(cell) if isinstance(cell, str) else cell.cell_len


def _wrapped(console: Console, cell: str | Text, width: int) -> list[Text]:
    from rich.text import Text

    text = Text(cell) if isinstance(cell, str) else cell.copy()
    if text.cell_len <= width:
        return [text]
    lines = list(text.wrap(console, width, overflow="fold"))
    for line in lines:
        line.rstrip()
    return lines


def _folded(console: Console, cell: str | Text, style: str, width: int, start: str) -> Iterator[Text]:
    """Yield a cell after `start`, and what does not fit on lines below it with the same indent."""
    from rich.text import Text

    for number, part in enumerate(_wrapped(console, cell, max(1, width - len(start)))):
        yield Text.assemble(start if number == 0 else " " * len(start), part, style=style)
