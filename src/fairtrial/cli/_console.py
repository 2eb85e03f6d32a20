"""The console that all text for people goes through: no text from elsewhere reaches the terminal as a command."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from fairtrial.core.terminal import visible


class SafeConsole(Console):
    """Shows control characters in text as escapes. Its own, for styles and progress, are no text and stay.

    Brackets and colons in text are text: nothing from elsewhere is read as markup or as the name of an emoji.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **settings)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)

    def on_broken_pipe(self) -> NoReturn:
        """Leaves it to the command what happens when its reader is gone: Rich itself would exit with status 1."""
        raise BrokenPipeError

    def out(self, *objects: Any, **settings: Any) -> None:
        """Lines as they are, neither wrapped nor styled; Rich would drop a few controls that are shown here."""
        super().out(*(visible(str(each)) for each in objects), **settings)
