"""The condition language of `profile check`, `preregister --exclude` and `runs list --where`.

    condition   = both { "or" both }
    both        = negation { "and" negation }
    negation    = { "not" } comparison
    comparison  = sum [ ("<=" | "<" | ">=" | ">" | "==" | "=" | "!=") sum ]
    sum         = product { ("+" | "-") product }
    product     = factor { ("*" | "/") factor }
    factor      = { "-" } ( number | text | "true" | "false" | path | "(" condition ")" )
    path        = ( name | "[" text "]" ) { "." name | "." index | "[" index "]" | "[" text "]" }

Strings are written in single or double quotes; `=` and `==` mean the same. No part is ever evaluated as Python.

`check` evaluates a condition on one document. It evaluates every part without short-circuiting, so that a misspelled
path is always reported. A null value is unknown, and so is any result computed from it: `unknown and false` is false,
`unknown or true` is true; every other combination, and a negation, stays unknown. An unknown condition does not hold.

`RowFilter` selects rows that may differ in names and types, so it is more lenient: it compares values as numbers if
both are numbers, and as case-insensitive strings otherwise; a missing value matches only `!=`. A single word on the
right of a comparison needs no quotes, unless it is the name of a column. A filter may also have the short form
`NAME sign VALUE`, where NAME may contain `/` and `-`, and VALUE extends to the end.
"""

from __future__ import annotations

import contextlib
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from fairtrial.core.errors import UsageError, UserError, nearest, unknown

LONGEST = 1000
DEEPEST = 40
_LARGEST = 2**63
_COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "=": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}
_EQUALITIES = ("==", "=", "!=")
_WORDS = ("and", "or", "not", "true", "false")
_TEXT = r"'[^']*'|\"[^\"]*\""
_TOKEN = re.compile(
    rf"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?![A-Za-z_])|(?P<text>{_TEXT})"
    rf"|(?P<path>(?:[A-Za-z_]\w*|\[(?:{_TEXT})\])(?:\.\w+|\[(?:\d+|{_TEXT})\])*)|(?P<sign><=|>=|==|!=|[<>=+\-*/()]))",
    re.ASCII,
)
_PART = re.compile(rf"\.?(\w+)|\[(\d+)\]|\[({_TEXT})\]", re.ASCII)
_SHORT = re.compile(r"\s*([\w./-]+)\s*(<=|>=|!=|==|=|<|>)\s*(.*?)\s*")
_HINT = "Example of a condition: policy_lag_steps.max <= max_policy_lag_steps"

Value = bool | int | float | str | None | Sequence[Any] | Mapping[str, Any]


@dataclass(frozen=True)
class ConditionResult:
    """Whether a condition holds. `left` and `right` are the compared values; None if it is not a single comparison.

    `text` is one sentence with the values. `unknown` names the null value if the condition is unknown.
    """

    holds: bool
    left: Value
    right: Value
    text: str
    unknown: str | None = None


def check(expression: str, document: Mapping[str, Any]) -> ConditionResult:
    """Evaluate a condition on a document. Raises UserError for syntax errors, missing paths and mismatched types."""
    term = _Reader(_tokens_of(expression), _Document(document)).read()
    if term.value is not None and not isinstance(term.value, bool):
        raise UserError(f"'{expression.strip()}' is not a comparison", hint=_HINT)
    left, right = term.sides or (None, None)
    if term.value is None:
        return ConditionResult(False, left, right, f"{expression.strip()} is unknown: {term.unknown}", term.unknown)
    what = "holds" if term.value else "does not hold"
    return ConditionResult(term.value, left, right, f"{expression.strip()} {what}: {term.text}")


@dataclass(frozen=True)
class _Term:
    """An evaluated part: its value, its text, why it is unknown, and the two sides if it is a comparison."""

    value: Value
    text: str
    unknown: str | None = None
    sides: tuple[Value, Value] | None = None


class _Scope(Protocol):
    """The meaning of paths while a condition is evaluated."""

    def value(self, path: str) -> Any:
        """Return the value at a path. Raises UserError if the path does not exist."""
        ...

    def is_word(self, path: str) -> bool:
        """Return whether this is a string without quotes instead of a path."""
        ...

    def compare(self, left: _Term, sign: str, right: _Term) -> _Term: ...


class _Document:
    """Looks paths up in one document; comparisons are strict about types."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document

    def value(self, path: str) -> Any:
        value: Any = self._document
        for part in _parts(path):
            value = self._below(value, part, path)
        return value

    def is_word(self, path: str) -> bool:  # noqa: ARG002 — in a document, an unknown path is an error
        return False

    def compare(self, left: _Term, sign: str, right: _Term) -> _Term:
        return _compared(left, sign, right)

    def _below(self, value: Any, part: str, path: str) -> Any:
        if isinstance(value, Mapping) and part in value:
            return value[part]
        is_index = part.isdecimal() and len(part) < 10 and isinstance(value, Sequence) and not isinstance(value, str)
        if is_index and int(part) < len(value):
            return value[int(part)]
        guess = nearest(path, _paths(self._document))
        hint = f"Available: {', '.join(map(str, self._document)) or 'none'}" if guess is None else None
        raise UserError(f"no '{path}' in the document" + (f"; did you mean '{guess}'?" if guess else ""), hint=hint)


class _Reader:
    """A recursive-descent parser that evaluates the condition while it parses."""

    def __init__(self, tokens: Sequence[tuple[str, str]], scope: _Scope) -> None:
        self._tokens, self._scope = tokens, scope
        self._at = 0
        self._depth = 0

    def read(self) -> _Term:
        term = self.condition()
        self.expect_end()
        return term

    def condition(self) -> _Term:
        term = self._both()
        while self._take("or"):
            term = _either(term, self._both())
        return term

    def expect_end(self) -> None:
        kind, word = self._next()
        if kind == "end":
            return
        if word in _COMPARISONS:
            raise UserError(f"comparisons cannot be chained: '{word}' follows one", hint="Join them with 'and'.")
        raise UserError(f"unexpected '{word}'", hint=_HINT)

    def _both(self) -> _Term:
        term = self._negation()
        while self._take("and"):
            term = _both_of(term, self._negation())
        return term

    def _negation(self) -> _Term:
        times = 0
        while self._take("not"):
            times += 1
        term = self._comparison()
        for _ in range(times):
            term = _negated(term)
        return term

    def _comparison(self) -> _Term:
        left = self._sum()
        if sign := self._take(*_COMPARISONS):
            return self._scope.compare(left, sign, self._word() or self._sum())
        return left

    def _word(self) -> _Term | None:
        """Parse a string without quotes, if the scope allows it and it is the whole side of a comparison."""
        kind, word = self._next()
        if kind != "path" or word in _WORDS or not self._scope.is_word(word):
            return None
        if self._tokens[self._at + 1][1] not in ("", "and", "or", ")"):
            return None
        self._at += 1
        return _Term(word, word)

    def _sum(self) -> _Term:
        term = self._product()
        while sign := self._take("+", "-"):
            term = _computed(term, sign, self._product())
        return term

    def _product(self) -> _Term:
        term = self._factor()
        while sign := self._take("*", "/"):
            term = _computed(term, sign, self._factor())
        return term

    def _factor(self) -> _Term:
        minus = 0
        while self._take("-"):
            minus += 1
        term = self._atom()
        if not minus:
            return term
        value = _number(term, "-")
        return _Term(value if value is None or minus % 2 == 0 else -value, "-" * minus + term.text, term.unknown)

    def _atom(self) -> _Term:
        kind, word = self._next()
        self._at += 1
        if kind == "number":
            return _Term(_literal(word), word)
        if kind == "text":
            return _Term(word[1:-1], word)
        if word in ("true", "false"):
            return _Term(word == "true", word)
        if kind == "path" and word not in _WORDS:
            return self._look_up(word)
        if word == "(":
            return self._in_parentheses()
        where = "the end" if kind == "end" else f"'{word}'"
        raise UserError(f"a value was expected before {where}", hint=_HINT)

    def _in_parentheses(self) -> _Term:
        self._depth += 1
        if self._depth > DEEPEST:
            raise UserError(f"parentheses are nested more than {DEEPEST} levels deep")
        inner = self.condition()
        self._depth -= 1
        if not self._take(")"):
            raise UserError("a ')' is missing", hint=_HINT)
        return _Term(inner.value, f"({inner.text})", inner.unknown, inner.sides)

    def _look_up(self, path: str) -> _Term:
        value = self._scope.value(path)
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= _LARGEST:
            value = _as_float(value)
        unknown = None
        if value is None or (isinstance(value, float) and math.isnan(value)):
            value, unknown = None, f"{path} is null"
        is_one = isinstance(value, (bool, int, float, str))
        return _Term(value, "unknown" if value is None else _shown(value) if is_one else path, unknown)

    def _next(self) -> tuple[str, str]:
        return self._tokens[self._at]

    def _take(self, *words: str) -> str | None:
        kind, word = self._next()
        if word not in words or kind in ("text", "end"):
            return None
        self._at += 1
        return word


def _tokens_of(expression: str) -> list[tuple[str, str]]:
    if len(expression) > LONGEST:
        raise UserError(f"a condition has at most {LONGEST:,} characters, not {len(expression):,}")
    return list(_tokens(expression))


def _tokens(expression: str) -> Iterator[tuple[str, str]]:
    at, end = 0, len(expression.rstrip())
    while at < end:
        match = _TOKEN.match(expression, at, end)
        if match is None or match.lastgroup is None:
            raise UserError(f"cannot read '{expression[at:end].strip()[:30]}' in a condition", hint=_HINT)
        yield match.lastgroup, match[match.lastgroup]
        at = match.end()
    yield "end", ""


def _parts(path: str) -> Iterator[str]:
    for name, index, text in _PART.findall(path):
        yield name or index or text[1:-1]


def _paths(value: Any, above: str = "", depth: int = 6) -> Iterator[str]:
    """Yield every path of a document, for suggestions; of each list, only the first element."""
    if depth and isinstance(value, Mapping):
        for name, inner in value.items():
            yield f"{above}{name}"
            yield from _paths(inner, f"{above}{name}.", depth - 1)
    elif depth and isinstance(value, Sequence) and not isinstance(value, str) and value:
        yield f"{above}0"
        yield from _paths(value[0], f"{above}0.", depth - 1)


# Operators.


def _compared(left: _Term, sign: str, right: _Term) -> _Term:
    sides, text = (left.value, right.value), f"{left.text} {sign} {right.text}"
    unknown = left.unknown or right.unknown
    if unknown:
        return _Term(None, text, unknown, sides)
    kinds = [_kind(term) for term in (left, right)]
    if kinds[0] != kinds[1]:
        raise UserError(f"{text}: {kinds[0]} cannot be compared with {kinds[1]}")
    if sign not in _EQUALITIES and kinds[0] != "a number":
        raise UserError(f"{text}: only numbers can be ordered; use == or != for {kinds[0]}")
    return _Term(bool(_COMPARISONS[sign](left.value, right.value)), text, None, sides)


def _kind(term: _Term) -> str:
    if isinstance(term.value, bool):
        return "a boolean"
    if isinstance(term.value, (int, float)):
        return "a number"
    if isinstance(term.value, str):
        return "a string"
    raise UserError(f"{term.text} is not a single value", hint="Name one of its parts.")


def _number(term: _Term, sign: str) -> int | float | None:
    if term.unknown:
        return None
    value = term.value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UserError(f"'{sign}' needs numbers; {term.text} is not a number")
    return value


def _computed(left: _Term, sign: str, right: _Term) -> _Term:
    a, b = _number(left, sign), _number(right, sign)
    text = f"{left.text} {sign} {right.text}"
    if a is None or b is None:
        return _Term(None, text, left.unknown or right.unknown)
    try:
        value = a + b if sign == "+" else a - b if sign == "-" else a * b if sign == "*" else a / b
    except ZeroDivisionError:
        raise UserError(f"{text}: division by zero") from None
    except OverflowError:
        raise UserError(f"{text}: the numbers are too large") from None
    if isinstance(value, float) and math.isnan(value):
        return _Term(None, text, f"{text} is not a number")
    return _Term(value, text)


def _either(left: _Term, right: _Term) -> _Term:
    a, b = _truth(left, "or"), _truth(right, "or")
    value = True if a or b else None if None in (a, b) else False
    return _Term(value, f"{left.text} or {right.text}", (left.unknown or right.unknown) if value is None else None)


def _both_of(left: _Term, right: _Term) -> _Term:
    a, b = _truth(left, "and"), _truth(right, "and")
    value = False if a is False or b is False else None if None in (a, b) else True
    return _Term(value, f"{left.text} and {right.text}", (left.unknown or right.unknown) if value is None else None)


def _negated(term: _Term) -> _Term:
    value = _truth(term, "not")
    return _Term(None if value is None else not value, f"not {term.text}", term.unknown)


def _truth(term: _Term, word: str) -> bool | None:
    if term.unknown:
        return None
    if not isinstance(term.value, bool):
        raise UserError(f"'{word}' needs conditions; {term.text} is not a condition")
    return term.value


def _literal(word: str) -> int | float:
    return int(word) if word.isdecimal() and len(word) <= 18 else _as_float(word)


def _as_float(value: str | int) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if math.isinf(number):
        raise UserError("a number is too large to compare")
    return number


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return repr(value)
    return f"{value:.12g}" if isinstance(value, float) else str(value)


# Conditions that select rows.


def _is_mistyped(_name: str, sign: str, value: str) -> bool:
    """Return whether `NAME>>3`, `NAME=>3` or `NAME>` was written: compared as text, it would match nothing."""
    return value.lstrip().startswith(("<", ">", "=", "!")) or (not value.strip() and sign in ("<", ">", "<=", ">="))


class RowFilter:
    """A condition that selects rows, such as those of `runs list --where`.

    The names of a row are its own keys and those of its mappings in `nested`. `as_number` converts a recorded value to
    a number, or raises. A text that is valid in both forms is interpreted as the short form, unless its value is quoted
    or it joins comparisons of existing names: `note=a and b` compares with one string, `seed=1 and step>5` is two
    comparisons.
    """

    def __init__(self, text: str, *, nested: Sequence[str] = (), as_number: Callable[[Any], float] = float) -> None:
        self._nested, self._as_number = nested, as_number
        short = _SHORT.fullmatch(text)
        self._short = (short[1], short[2], short[3]) if short else None
        self._tokens: Sequence[tuple[str, str]] = ()
        survey = _Survey()
        try:
            self._tokens = _tokens_of(text)
            _Reader(self._tokens, survey).read()
            problem = None if survey.comparisons else "it contains no comparison"
        except UserError as error:
            problem = error.message
        self._paths, self._is_whole = survey.paths, problem is None
        # An incomplete condition must not be interpreted as a short one: it would silently select the wrong rows.
        is_half = any(text.rstrip().endswith(f" {word}") for word in ("and", "or", "not"))
        if problem and (self._short is None or is_half or _is_mistyped(*self._short)):
            hint = "Write it as NAME=VALUE, NAME>VALUE, NAME!=VALUE …"
            raise UsageError(f"invalid condition '{text}': {problem}", hint=hint)

    def over(self, rows: Sequence[Mapping[str, Any]]) -> Callable[[Mapping[str, Any]], bool]:
        """Return a predicate for these rows. A name that no row has is an error, not an empty result."""
        if not rows:
            return lambda _: True
        names = _RowNames(rows, self._nested)
        wrong = [path for path in self._paths if not names.has(path)]
        is_long = any(kind == "text" or word in ("and", "or") for kind, word in self._tokens)
        if self._short is not None and (not self._is_whole or wrong or not is_long):
            name = self._short[0]
            if names.has_plain(name):
                return self._short_test(names)
            if not self._is_whole or wrong:
                raise UserError(unknown("name in a condition", name, names.plain))
        elif wrong:
            raise UserError(unknown("name in a condition", wrong[0], names.plain))
        return lambda row: _Reader(self._tokens, _RowScope(row, names, self.matches)).read().value is True

    def _short_test(self, names: _RowNames) -> Callable[[Mapping[str, Any]], bool]:
        assert self._short is not None
        name, sign, text = self._short
        value: float | str = text
        with contextlib.suppress(ValueError):
            value = float(text)
        return lambda row: self.matches(names.value(row, name), sign, value, text)

    def matches(self, left: Any, sign: str, right: Any, text: str) -> bool:
        """Compare as numbers if both are numbers, else as strings. Null matches only `!=`. `text` is the right side."""
        if left is None or right is None:
            return sign == "!="
        compare = _COMPARISONS[sign]
        if not isinstance(right, str):
            try:
                return bool(compare(self._as_number(left), self._as_number(right)))
            except (TypeError, ValueError, KeyError, OverflowError):
                pass
        return bool(compare(str(left).lower(), text.lower()))


class _Survey:
    """Parses a condition without rows, to check its syntax and collect its names.

    Every name has a number as its value, so that only comparisons can be joined. The number is infinity, because
    arithmetic on names alone then never gives zero (`a - a` is NaN), which could cause a division by zero.
    """

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.comparisons = 0

    def value(self, path: str) -> Any:
        self.paths.append(path)
        return math.inf

    def is_word(self, path: str) -> bool:  # noqa: ARG002 — without rows, any path may be a string
        return True

    def compare(self, left: _Term, sign: str, right: _Term) -> _Term:  # noqa: ARG002
        self.comparisons += 1
        return _Term(True, "")


class _RowNames:
    """The names that rows have."""

    def __init__(self, rows: Sequence[Mapping[str, Any]], nested: Sequence[str]) -> None:
        self._rows, self._nested = rows, nested

    @cached_property
    def plain(self) -> set[str]:
        """Names that need no path: those of rows and of their nested mappings."""
        return set().union(*self._rows, *(names for names in self._inside.values()))

    @cached_property
    def _inside(self) -> dict[str, set[str]]:
        return {part: set().union(*(row[part] for row in self._rows)) for part in self._nested}

    def has_plain(self, name: str) -> bool:
        return name in self._rows[0] or name in self.plain

    def has(self, path: str) -> bool:
        first, *rest = _parts(path)
        return rest[0] in self._inside[first] if rest and first in self._inside else self.has_plain(first)

    def value(self, row: Mapping[str, Any], name: str) -> Any:
        """Return the value of a name: the row's own key first, then those of its nested mappings in order."""
        if name in row:
            return row[name]
        return next((row[part][name] for part in self._nested if name in row[part]), None)


class _RowScope:
    """Looks paths up in one row; a name that only other rows have is null."""

    def __init__(self, row: Mapping[str, Any], names: _RowNames, matches: Callable[[Any, str, Any, str], bool]) -> None:
        self._row, self._names, self._matches = row, names, matches

    def value(self, path: str) -> Any:
        first, *rest = _parts(path)
        value = self._names.value(self._row, first)
        for part in rest:
            if isinstance(value, Mapping):
                value = value.get(part)
            elif isinstance(value, Sequence) and not isinstance(value, str) and part.isdecimal() and len(part) < 10:
                value = value[int(part)] if int(part) < len(value) else None
            else:
                return None
        return value

    def is_word(self, path: str) -> bool:
        return not self._names.has(path)

    def compare(self, left: _Term, sign: str, right: _Term) -> _Term:
        text = right.value if isinstance(right.value, str) else right.text
        return _Term(self._matches(left.value, sign, right.value, text), "")
