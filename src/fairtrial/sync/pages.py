"""Options that a documentation page does not mention."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fairtrial.sync.parameters import Parameter


@dataclass(frozen=True)
class Undocumented:
    """An option, with its flags that the page does not mention."""

    parameter: Parameter
    flags: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.parameter.name, "flags": list(self.flags), "help": self.parameter.help}


def undocumented(parameters: Sequence[Parameter], text: str) -> list[Undocumented]:
    """Return options with flags missing from the page. Every long flag of a visible option must occur as a word."""
    text = re.sub(r"--\[no-\]([\w.-]+)", r"--\1 --no-\1", text)
    missing = []
    for each in parameters:
        flags = tuple(flag for flag in _to_be_named(each) if not _names(text, flag))
        if flags and not each.hidden:
            missing.append(Undocumented(each, flags))
    return missing


def _to_be_named(parameter: Parameter) -> list[str]:
    """Return the long flags, or the short flags if there are no long ones."""
    flags = [*parameter.flags, *parameter.off_flags]
    return [flag for flag in flags if flag.startswith("--")] or flags


def _names(text: str, flag: str) -> bool:
    """Whether the text mentions a flag. `--lr-decay` and `--lr.decay` do not mention `--lr`."""
    return bool(re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-]|\.\w)", text))
