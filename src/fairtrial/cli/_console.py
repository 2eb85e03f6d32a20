"""The console for all text output. It keeps untrusted text from sending control sequences to the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from fairtrial.core.terminal import visible


class SafeConsole(Console):
    """A Rich console that shows control characters in text as escapes. Rich's own control codes are unaffected.

    Markup and emoji names in text are not interpreted.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **settings)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)

    def on_broken_pipe(self) -> NoReturn:
        """Re-raise the error so that the command handles it. Rich itself would exit with status 1."""
        raise BrokenPipeError

    def out(self, *objects: Any, **settings: Any) -> None:
        """Print lines unwrapped and unstyled. Rich would drop some control characters; this shows them as escapes."""
        super().out(*(visible(str(each)) for each in objects), **settings)
