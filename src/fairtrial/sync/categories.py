"""Category of an option: what it changes, according to its declared role, else to its name.

Options that change what a training step computes belong in a benchmark. Options that only change what is recorded
belong on the list of exclusions. The patterns are in `categories.yaml` next to this module, or in a user's file.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from fairtrial.core.errors import InvalidOptions, unknown
from fairtrial.core.options import NOT_BENCHED
from fairtrial.core.yaml_values import load_yaml
from fairtrial.sync.parameters import Parameter

KEYS = ("name", "patterns", "reason")
NEEDED = ("name", "patterns")
DIGITS = "0123456789"
LONGEST_PATTERN = 100
HINT = "Start from the built-in list: fairtrial sync --show-categories > categories.yaml"


@dataclass(frozen=True)
class Category:
    """A category of options. `reason` says why a benchmark may leave them out; None if it may not."""

    name: str
    patterns: tuple[str, ...] = ()
    reason: str | None = None

    @property
    def training(self) -> bool:
        """Whether its options change a training step. False for the category of options that match no pattern."""
        return self.reason is None and self is not OTHER

    def matches(self, name: str) -> bool:
        return any(_matches(pattern, name) for pattern in self.patterns)


OTHER = Category("other")


def _matches(pattern: str, name: str) -> bool:
    """Whether the words of a pattern occur consecutively among the words of a name."""
    wanted, words = pattern.split("-"), name.split("-")
    return any(
        all(map(_same_word, wanted, words[start : start + len(wanted)]))
        for start in range(len(words) - len(wanted) + 1)
    )


def _same_word(pattern: str, word: str) -> bool:
    return any(fnmatch.fnmatchcase(each, pattern) for each in (word, word.rstrip(DIGITS)) if each)


@dataclass(frozen=True)
class Categories:
    """A list of categories. An option belongs to the first one that matches."""

    entries: tuple[Category, ...]

    def of(self, parameter: Parameter) -> Category:
        """Return the category of an option. A declared role takes precedence; an unknown role counts as training."""
        role = parameter.role
        if role is None:
            return next((each for each in self.entries if each.matches(parameter.name)), OTHER)
        declared = {str(name): Category(name, reason=reason) for name, reason in NOT_BENCHED.items()}
        listed = {each.name: each for each in self.entries}
        return listed.get(role) or declared.get(role) or Category(role)


def built_in_text() -> str:
    """Return the built-in list as editable YAML text, including comments."""
    return files("fairtrial.sync").joinpath("categories.yaml").read_text(encoding="utf-8")


@cache
def built_in_categories() -> Categories:
    return parse_categories(load_yaml(built_in_text()), where="the built-in categories")


def parse_categories(content: Any, *, where: str) -> Categories:
    """Parse a document into categories, or raise an error that lists all of its problems."""
    problems = list(_problems(content))
    if problems:
        messages = [f"{where}: {each}" for each in problems]
        raise InvalidOptions(messages[0], problems=messages[1:], hint=HINT)
    return Categories(
        tuple(
            Category(each["name"].strip(), tuple(map(_plain, each["patterns"])), each.get("reason"))
            for each in content["categories"]
        )
    )


def _plain(pattern: str) -> str:
    return pattern.strip().lstrip("-").replace("_", "-")


def _problems(content: Any) -> Iterator[str]:
    if not isinstance(content, dict):
        yield "it must have exactly one key, 'categories', with a list"
        return
    yield from (unknown("key", str(key), ("categories",)) for key in content if key != "categories")
    entries = content.get("categories")
    if not isinstance(entries, list) or not entries:
        yield "'categories' must be a list with at least one category"
        return
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, dict):
            yield f"category {number} must have the keys name and patterns"
            continue
        title = entry.get("name")
        named = f"category {number}" + (f" ('{title}')" if isinstance(title, str) and title.strip() else "")
        yield from (f"{named}: {each}" for each in _entry_problems(entry))


def _entry_problems(entry: dict[Any, Any]) -> Iterator[str]:
    yield from (unknown("key", str(key), KEYS) for key in entry if key not in KEYS)
    yield from (f"the key '{key}' is missing" for key in NEEDED if key not in entry)
    for key in ("name", "reason"):
        if key in entry and not (isinstance(entry[key], str) and entry[key].strip()):
            yield f"'{key}' must be text, not {entry[key]!r}"
    patterns = entry.get("patterns", [""])
    if not isinstance(patterns, list) or not patterns:
        yield f"'patterns' must be a list with at least one pattern, not {patterns!r}"
        return
    for pattern in patterns if "patterns" in entry else ():
        if not isinstance(pattern, str):
            yield f"the pattern {pattern!r} must be text; put it in quotes"
        elif not _plain(pattern) or len(pattern) > LONGEST_PATTERN:
            yield f"the pattern {pattern[:LONGEST_PATTERN]!r} must have 1 to {LONGEST_PATTERN} characters"
