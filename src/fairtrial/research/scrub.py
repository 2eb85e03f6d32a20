"""What a bundle must not tell by accident: the name of the machine, of its user, and where things lie on it.

Series of metrics are never touched. The author's own words, in artifact.yaml and in files that were added, are not
either: what they say was meant to be said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import orjson

from fairtrial.core.run_metadata import RunMetadata

RULES = (
    "environment.hostname and environment.executable of runs are null",
    "environment.command_line of runs has files outside of the project by their names alone",
    "telemetry.endpoint of runs is left out",
    "the folder of the store reads runs, that of the project ., the home folder ~",
    "the name of the machine reads HOST, unless it is also that of a study, variant or recipe",
    "registrations, which are signed, and files that a person wrote or added are as they were",
)
_ABSOLUTE = re.compile(rb'"((?:/[\w.+@=-]+){2,}/?)"')
_FOLDERS = re.compile(r"(?:(?<=file://)|(?<![\w.~/:*?$}-]))/(?:[^/\s,;=:'\"]+/)*(?=[^/\s])")
"""The folders of an absolute path, wherever in a word it begins; not those of an address such as s3://bucket/a."""
_TELLING = 4
"""Shorter names of machines occur in any text by chance."""


@dataclass(frozen=True)
class Scrubber:
    """Replaces what tells where a bundle was made."""

    patterns: tuple[tuple[re.Pattern[bytes], bytes], ...]

    @classmethod
    def of(cls, *, project: Path, store: Path, home: Path, hosts: Iterable[str]) -> Scrubber:
        places = [(str(store), b"runs"), (str(store.resolve()), b"runs"), (str(project), b"."),
                  (str(project.resolve()), b"."), (str(home), b"~")]  # fmt: skip
        patterns = [
            (re.compile(re.escape(place.encode()) + rb"(?![\w.-])"), word)
            for place, word in dict.fromkeys(places)
            if len(place) > 1
        ]
        named = sorted({host for host in hosts if len(host) >= _TELLING and host != "localhost"}, key=len, reverse=True)
        patterns += [
            (re.compile(rb"(?<![\w.-])" + re.escape(host.encode()) + rb"(?![\w-])"), b"HOST") for host in named
        ]
        return cls(tuple(patterns))

    def text(self, content: bytes) -> bytes:
        for pattern, word in self.patterns:
            content = pattern.sub(word, content)
        return content

    def metadata(self, metadata: RunMetadata) -> bytes:
        """metadata.json of a run as it is published."""
        environment = metadata.environment
        left_out = {key: None for key in ("hostname", "executable") if key in environment}
        environment = environment.replace(**left_out)
        if environment.command_line:
            environment = environment.replace(command_line=self.command_line(environment.command_line))
        metadata = metadata.replace(environment=environment)
        if metadata.telemetry:
            metadata = metadata.replace(telemetry={**metadata.telemetry, "endpoint": "(left out)", "last_error": None})
        return self.text(orjson.dumps(metadata, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))

    def command_line(self, words: Iterable[str]) -> list[str]:
        """A command line as it is published: files outside of the project by their names alone."""
        scrubbed = (self.text(word.encode(errors="surrogatepass")).decode(errors="replace") for word in words)
        return [_FOLDERS.sub("", word) for word in scrubbed]


def absolute_paths(content: bytes) -> set[str]:
    """Paths that are still told: the author is shown them, since only a person knows whether they matter."""
    return {path.decode(errors="replace") for path in _ABSOLUTE.findall(content)}
