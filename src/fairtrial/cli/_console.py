"""The console that results are printed on."""

from __future__ import annotations

from typing import NoReturn

from rich.console import Console


class ResultConsole(Console):
    """Leaves it to the command what happens when its reader is gone: Rich itself would exit with status 1."""

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError
