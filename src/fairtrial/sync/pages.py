"""Which options a page of documentation leaves out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fairtrial.sync.parameters import Parameter


@dataclass(frozen=True)
class Undocumented:
    """An option with the flags of it that the page does not name."""

    parameter: Parameter
    flags: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.parameter.name, "flags": list(self.flags), "help": self.parameter.help}


def undocumented(parameters: Sequence[Parameter], text: str) -> list[Undocumented]:
    """Hidden options are hidden on purpose; of the others every long flag must be there as a word of its own."""
    text = re.sub(r"--\[no-\]([\w.-]+)", r"--\1 --no-\1", text)
    missing = []
    for each in parameters:
        flags = tuple(flag for flag in _to_be_named(each) if not _names(text, flag))
        if flags and not each.hidden:
            missing.append(Undocumented(each, flags))
    return missing


def _to_be_named(parameter: Parameter) -> list[str]:
    """Long flags; where there are none, the short ones."""
    flags = [*parameter.flags, *parameter.off_flags]
    return [flag for flag in flags if flag.startswith("--")] or flags


def _names(text: str, flag: str) -> bool:
    """`--lr-decay` does not name `--lr`, and neither does `--lr.decay`."""
    return bool(re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-]|\.\w)", text))
