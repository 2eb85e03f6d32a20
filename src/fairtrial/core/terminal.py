"""Make untrusted text safe to print: names, reasons, logs and query results may contain terminal escapes.

A terminal executes control characters: they can clear the screen, overwrite earlier lines, set the title, and on some
terminals type into the shell. Text-direction marks can change how a line reads. All of them are printed as escapes
such as `\\x1b`. JSON and CSV that go to a file or a pipe are data and stay unchanged.
"""

from __future__ import annotations

import re

_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""C0 except tab and newline, DEL, C1, line separators, text-direction marks, and lone surrogates."""


def visible(text: str) -> str:
    """Return the text with every control character escaped."""
    return _CONTROLS.sub(_escape, text) if _CONTROLS.search(text) else text


def visible_json(text: str) -> str:
    """Return an equivalent JSON document with every control character as a JSON escape."""
    import json  # imported here because only JSON on a terminal needs it, and start-up must be fast

    return _CONTROLS.sub(lambda match: json.dumps(match[0])[1:-1], text)


def _escape(match: re.Match[str]) -> str:
    number = ord(match[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
