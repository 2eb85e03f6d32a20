"""The one table of all commands: nothing is cut, whatever the width."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.cells import cell_len

from fairtrial.cli._bars import short_name
from fairtrial.cli._console import SafeConsole
from fairtrial.cli._tables import Column, PlainTable, plain_table

NAME = "a-variant-with-a-name-of-forty-characters"


def printed(table: PlainTable, width: int) -> list[str]:
    out = StringIO()
    SafeConsole(file=out, width=width).print(table)
    return out.getvalue().splitlines()


def arms(name: str = NAME) -> PlainTable:
    table = plain_table("variant", Column("runs", omit=1), "mean", Column("verdict", left=True))
    table.add_row(name, "15", "0.12345678", "inconclusive")
    table.add_row("b", "3", "12.5", "better")
    return table


def test_a_table_that_fits_is_aligned_by_column() -> None:
    assert printed(arms("a"), 80) == [
        "variant  runs        mean  verdict",
        "a          15  0.12345678  inconclusive",
        "b           3        12.5  better",
    ]


def test_a_narrow_table_first_omits_what_matters_less_and_says_so() -> None:
    table = arms()
    assert table.shows("runs", 80) and not table.shows("runs", 68)
    assert printed(table, 68)[0].split() == ["variant", "mean", "verdict"]


def test_a_narrower_table_puts_names_on_lines_of_their_own() -> None:
    assert printed(arms(), 45) == [
        "variant",
        "        mean  verdict",
        NAME,
        "  0.12345678  inconclusive",
        "b",
        "        12.5  better",
    ]


def test_the_narrowest_table_has_one_line_per_cell() -> None:
    assert printed(arms("a"), 22)[:4] == [
        "variant a",
        "  mean     0.12345678",
        "  verdict  inconclusiv",
        "           e",
    ]


@pytest.mark.parametrize("width", range(30, 130, 7))
def test_every_number_is_whole_at_every_width_and_no_line_is_wider(width: int) -> None:
    lines = printed(arms(), width)
    assert all(len(line) <= width for line in lines)
    assert "0.12345678" in " ".join(lines) and "…" not in "".join(lines)
    assert NAME in "".join(line.strip() for line in lines).replace(" ", "")


def test_a_table_of_runs_keeps_a_name_that_is_wider_than_the_terminal_on_one_line() -> None:
    table = plain_table("run", "mean")
    table.whole_names = True
    table.add_row("x" * 100, "0.5")
    out = StringIO()
    SafeConsole(file=out, width=40).print(table, crop=False)
    assert "x" * 100 in out.getvalue().splitlines()


def test_sentences_wrap_in_their_column() -> None:
    table = plain_table("run", Column("", left=True, wraps=True))
    table.add_row("a", "this sentence is longer than the terminal is wide, so it wraps")
    lines = printed(table, 40)
    assert len(lines) == 3 and all(line.startswith("     ") for line in lines[2:])


def test_wide_characters_and_controls_count_as_they_are_shown() -> None:
    table = plain_table("variant", "mean")
    table.add_row("数数数", "1")
    table.add_row("\x1b[2J\n", "2")
    lines = printed(table, 80)
    assert len({cell_len(line) for line in lines}) == 1
    assert "\\x1b[2J\\n" in lines[2]


def test_rows_must_have_all_cells() -> None:
    with pytest.raises(ValueError, match="1 cells for 2 columns"):
        plain_table("a", "b").add_row("x")


@pytest.mark.parametrize("width", [16, 25, 36])
def test_a_shortened_name_keeps_its_seed(width: int) -> None:
    short = short_name(f"{NAME}.seed1072.again2", width)
    assert len(short) == width and short.endswith(".seed1072.again2"[-width + 1 :]) and short.count("…") == 1
