"""Progress on a real terminal: numbers are whole, and nothing of the bars stays behind."""

from __future__ import annotations

import os
import pty
import re
import struct
import subprocess
import sys
import termios
from fcntl import ioctl
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from fairtrial.cli._bars import progress_bars

WIDTH = 80
VARIANT = "a-variant-with-a-name-of-forty-character"


class Terminal:
    """The part of a terminal that progress bars use: wrapping, carriage return, line feed, cursor up, erase line."""

    def __init__(self) -> None:
        self.lines: list[str] = [""]
        self.row = self.column = 0
        self.cursor_visible = True

    def feed(self, text: str) -> None:
        for code, character in re.findall(r"\x1b\[([0-9;?]*[A-Za-z])|([^\x1b])", text):
            if code.endswith("A"):
                self.row = max(0, self.row - int(code[:-1] or 1))
            elif code == "2K":
                self.lines[self.row] = ""
            elif code in ("?25h", "?25l"):
                self.cursor_visible = code == "?25h"
            elif character == "\r":
                self.column = 0
            elif character == "\n":
                self._down()
            elif character:
                self._put(character)

    def _put(self, character: str) -> None:
        if self.column == WIDTH:
            self.column = 0
            self._down()
        line = self.lines[self.row].ljust(self.column)
        self.lines[self.row] = line[: self.column] + character + line[self.column + 1 :]
        self.column += 1

    def _down(self) -> None:
        self.row += 1
        if self.row == len(self.lines):
            self.lines.append("")

    @property
    def screen(self) -> list[str]:
        return [line.rstrip() for line in self.lines if line.strip()]


def test_bars_with_long_names_show_whole_numbers() -> None:
    out = StringIO()
    bars = progress_bars(Console(file=out, width=WIDTH))
    for seed, steps in ((1072, 100_000), (2043, 1_000)):
        bars.add_task(f"{VARIANT}.seed{seed}", total=steps, completed=80, unit="steps")
    bars.add_task("4 queued, 2 running", total=6, unit="runs")
    Console(file=out, width=WIDTH).print(bars.get_renderable())
    lines = out.getvalue().splitlines()
    assert "80/100000 steps" in lines[0] and "….seed" not in lines[0] and ".seed1072 " in lines[0]
    assert "80/1000 steps" in lines[1] and ".seed2043 " in lines[1] and "0/6 runs" in lines[2]
    assert all(len(line.rstrip()) <= WIDTH - 4 for line in lines), "the terminal prints ^C after the last bar"


@pytest.mark.slow
def test_ctrl_c_leaves_a_clean_screen(tmp_path: Path) -> None:
    words = ["launch", "fake", "--step-time", "0.02", "--steps", "5000", "--seeds", "2", "--jobs", "2"]
    words += ["--base-run-name", "s", "--variant", f"{VARIANT}:"]
    controller, terminal = pty.openpty()
    ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, WIDTH, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "fairtrial", *words],
        stdin=terminal, stdout=terminal, stderr=terminal, close_fds=True, start_new_session=True, cwd=tmp_path,
        preexec_fn=lambda: ioctl(0, termios.TIOCSCTTY, 0), env={**os.environ, "TERM": "xterm"},
    )  # fmt: skip
    os.close(terminal)
    seen = Terminal()
    printed = ""
    asked = False
    while True:
        try:
            text = os.read(controller, 65536).decode(errors="replace")
        except OSError:  # the other side is closed
            break
        printed += text
        seen.feed(text)
        if not asked and "Time: about" in printed:  # a line that is printed while bars are drawn
            os.write(controller, b"\x03")
            asked = True
    os.close(controller)
    assert process.wait() == 130
    assert seen.cursor_visible
    assert not [line for line in seen.screen if "━" in line or ".seed" in line], "a bar stayed behind"
    shown = seen.screen[seen.screen.index("Stopping: runs save first. Press Ctrl-C again to kill them.") :]
    assert shown == [
        "Stopping: runs save first. Press Ctrl-C again to kill them.",
        "Stopped. Everything recorded so far is kept; run the same command again to",
        "resume.",
    ]
