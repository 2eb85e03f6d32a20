"""Remove host names, user names and local paths from the files of a bundle.

Metric series are never changed. Neither are texts that the author wrote deliberately: artifact.yaml and added files.
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
    "environment.command_line of runs has only the names of files outside the project",
    "telemetry.endpoint of runs is left out",
    "the path of the store is replaced by runs, that of the project by ., the home folder by ~",
    "the host name is replaced by HOST, unless it is also the name of a study, variant or recipe",
    "registrations, which are signed, and files that the user wrote or added are unchanged",
)
_ABSOLUTE = re.compile(rb'"((?:/[\w.+@=-]+){2,}/?)"')
_FOLDERS = re.compile(r"(?:(?<=file://)|(?<![\w.~/:*?$}-]))/(?:[^/\s,;=:'\"]+/)*(?=[^/\s])")
"""Matches the folders of an absolute path anywhere in a word, but not those of a URL such as s3://bucket/a."""
_TELLING = 4
"""Minimum length of a host name to replace. Shorter names occur in any text by chance."""


@dataclass(frozen=True)
class Scrubber:
    """Replaces paths and host names of the machine on which a bundle is made."""

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
        """Return the metadata.json of a run as published."""
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
        """Return a command line as published, with only the names of files outside the project."""
        scrubbed = (self.text(word.encode(errors="surrogatepass")).decode(errors="replace") for word in words)
        return [_FOLDERS.sub("", word) for word in scrubbed]


def absolute_paths(content: bytes) -> set[str]:
    """Return the absolute paths that remain, so that the author can decide whether they are sensitive."""
    return {path.decode(errors="replace") for path in _ABSOLUTE.findall(content)}
