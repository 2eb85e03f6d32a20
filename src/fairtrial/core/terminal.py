"""Text from elsewhere, made safe to print: names, reasons, logs and query results may hold terminal escapes.

A terminal obeys control characters: they can clear the screen, write over earlier lines, set the title, and on some
terminals type into the shell. Marks of text direction make a line read as another one. All of them are shown as
escapes such as `\\x1b` in whatever is printed for people. JSON and CSV that go to a file or a pipe are data and stay as
they are.
"""

from __future__ import annotations

import re

_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""C0 but tab and newline, DEL, C1, separators of lines, marks of direction, and halves of surrogate pairs."""


def visible(text: str) -> str:
    """The text with every control character spelled out."""
    return _CONTROLS.sub(_escape, text) if _CONTROLS.search(text) else text


def visible_json(text: str) -> str:
    """A JSON document that means the same, with every control character as a JSON escape."""
    import json  # only JSON on a terminal needs it, and start-up is to be instant

    return _CONTROLS.sub(lambda match: json.dumps(match[0])[1:-1], text)


def _escape(match: re.Match[str]) -> str:
    number = ord(match[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
