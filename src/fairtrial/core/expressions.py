"""A small language of conditions over a JSON document: `policy_lag_steps.max <= max_policy_lag_steps`.

    condition   = both { "or" both }
    both        = negation { "and" negation }
    negation    = { "not" } comparison
    comparison  = sum [ ("<=" | "<" | ">=" | ">" | "==" | "!=") sum ]
    sum         = product { ("+" | "-") product }
    product     = factor { ("*" | "/") factor }
    factor      = { "-" } ( number | text | "true" | "false" | path | "(" condition ")" )
    path        = ( name | "[" text "]" ) { "." name | "." index | "[" index "]" | "[" text "]" }

Nothing is ever evaluated as Python. Everything is read, whatever the rest decides, so that a misspelt path is always
found. A value that is null is unknown, and so is what is made of it: `unknown and false` is false, `unknown or true`
is true, anything else stays unknown, its negation too. What is unknown does not hold.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairtrial.core.errors import UserError, nearest

LONGEST = 1000
DEEPEST = 40
_LARGEST = 2**63
_COMPARISONS = ("<=", ">=", "==", "!=", "<", ">")
_WORDS = ("and", "or", "not", "true", "false")
_TEXT = r"'[^']*'|\"[^\"]*\""
_TOKEN = re.compile(
    rf"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?![A-Za-z_])|(?P<text>{_TEXT})"
    rf"|(?P<path>(?:[A-Za-z_]\w*|\[(?:{_TEXT})\])(?:\.\w+|\[(?:\d+|{_TEXT})\])*)|(?P<sign><=|>=|==|!=|[<>+\-*/()]))",
    re.ASCII,
)
_PART = re.compile(rf"\.?(\w+)|\[(\d+)\]|\[({_TEXT})\]", re.ASCII)
_HINT = "Write it like: policy_lag_steps.max <= max_policy_lag_steps"

Value = bool | int | float | str | None | Sequence[Any] | Mapping[str, Any]


@dataclass(frozen=True)
class ConditionResult:
    """Whether a condition holds. `left` and `right` are what was compared, None where it is not one comparison.

    `text` is one sentence with the values that decided. `unknown` says what is null, where that is why.
    """

    holds: bool
    left: Value
    right: Value
    text: str
    unknown: str | None = None


def check(expression: str, document: Mapping[str, Any]) -> ConditionResult:
    """Hold a condition against a document. Raises UserError for what cannot be read, found or compared."""
    reader = _Reader(expression, document)
    term = reader.condition()
    reader.expect_end()
    if term.value is not None and not isinstance(term.value, bool):
        raise UserError(f"'{expression.strip()}' compares nothing", hint=_HINT)
    left, right = term.sides or (None, None)
    if term.value is None:
        return ConditionResult(False, left, right, f"{expression.strip()} is unknown: {term.unknown}", term.unknown)
    what = "holds" if term.value else "does not hold"
    return ConditionResult(term.value, left, right, f"{expression.strip()} {what}: {term.text}")


@dataclass(frozen=True)
class _Term:
    """A part that has been read: its value, how it is told, why it is unknown, and what was compared if it was."""

    value: Value
    text: str
    unknown: str | None = None
    sides: tuple[Value, Value] | None = None


class _Reader:
    """Reads from left to right and computes as it goes."""

    def __init__(self, expression: str, document: Mapping[str, Any]) -> None:
        if len(expression) > LONGEST:
            raise UserError(f"a condition has at most {LONGEST:,} characters, not {len(expression):,}")
        self._document = document
        self._tokens = list(_tokens(expression))
        self._at = 0
        self._depth = 0

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
            raise UserError(f"comparisons cannot be chained: '{word}' stands behind one", hint="Join them with 'and'.")
        raise UserError(f"'{word}' was not expected there", hint=_HINT)

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
        for sign in _COMPARISONS:
            if self._take(sign):
                return _compared(left, sign, self._sum())
        return left

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
            return self._found(word)
        if word == "(":
            return self._in_parentheses()
        where = "the end" if kind == "end" else f"'{word}'"
        raise UserError(f"a value was expected before {where}", hint=_HINT)

    def _in_parentheses(self) -> _Term:
        self._depth += 1
        if self._depth > DEEPEST:
            raise UserError(f"more than {DEEPEST} parentheses lie in each other")
        inner = self.condition()
        self._depth -= 1
        if not self._take(")"):
            raise UserError("a ')' is missing", hint=_HINT)
        return _Term(inner.value, f"({inner.text})", inner.unknown, inner.sides)

    def _found(self, path: str) -> _Term:
        value: Any = self._document
        for part in _parts(path):
            value = self._below(value, part, path)
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= _LARGEST:
            value = _as_float(value)
        unknown = None
        if value is None or (isinstance(value, float) and math.isnan(value)):
            value, unknown = None, f"{path} is null"
        is_one = isinstance(value, (bool, int, float, str))
        return _Term(value, "unknown" if value is None else _shown(value) if is_one else path, unknown)

    def _below(self, value: Any, part: str, path: str) -> Any:
        if isinstance(value, Mapping) and part in value:
            return value[part]
        is_index = part.isdecimal() and len(part) < 10 and isinstance(value, Sequence) and not isinstance(value, str)
        if is_index and int(part) < len(value):
            return value[int(part)]
        guess = nearest(path, _paths(self._document))
        hint = f"There are: {', '.join(map(str, self._document)) or 'none'}" if guess is None else None
        raise UserError(f"no '{path}' in the document" + (f"; did you mean '{guess}'?" if guess else ""), hint=hint)

    def _next(self) -> tuple[str, str]:
        return self._tokens[self._at]

    def _take(self, *words: str) -> str | None:
        kind, word = self._next()
        if word not in words or kind in ("text", "end"):
            return None
        self._at += 1
        return word


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
    """What could have been meant: every path of a document, of lists the first element."""
    if depth and isinstance(value, Mapping):
        for name, inner in value.items():
            yield f"{above}{name}"
            yield from _paths(inner, f"{above}{name}.", depth - 1)
    elif depth and isinstance(value, Sequence) and not isinstance(value, str) and value:
        yield f"{above}0"
        yield from _paths(value[0], f"{above}0.", depth - 1)


# What the signs mean.


def _compared(left: _Term, sign: str, right: _Term) -> _Term:
    sides, text = (left.value, right.value), f"{left.text} {sign} {right.text}"
    unknown = left.unknown or right.unknown
    if unknown:
        return _Term(None, text, unknown, sides)
    kinds = [_kind(term) for term in (left, right)]
    if kinds[0] != kinds[1]:
        raise UserError(f"{text}: {kinds[0]} cannot be compared with {kinds[1]}")
    if sign not in ("==", "!=") and kinds[0] != "a number":
        raise UserError(f"{text}: only numbers have an order; {kinds[0]} can be == or != to another")
    a: Any = left.value
    b: Any = right.value
    outcome = {"<=": a <= b, "<": a < b, ">=": a >= b, ">": a > b} if kinds[0] == "a number" else {}
    return _Term({**outcome, "==": a == b, "!=": a != b}[sign], text, None, sides)


def _kind(term: _Term) -> str:
    if isinstance(term.value, bool):
        return "yes or no"
    if isinstance(term.value, (int, float)):
        return "a number"
    if isinstance(term.value, str):
        return "a text"
    raise UserError(f"{term.text} is no single value", hint="Name one of its parts.")


def _number(term: _Term, sign: str) -> int | float | None:
    if term.unknown:
        return None
    value = term.value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UserError(f"'{sign}' is for numbers; {term.text} is none")
    return value


def _computed(left: _Term, sign: str, right: _Term) -> _Term:
    a, b = _number(left, sign), _number(right, sign)
    text = f"{left.text} {sign} {right.text}"
    if a is None or b is None:
        return _Term(None, text, left.unknown or right.unknown)
    try:
        value = a + b if sign == "+" else a - b if sign == "-" else a * b if sign == "*" else a / b
    except ZeroDivisionError:
        raise UserError(f"{text}: nothing can be divided by 0") from None
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
        raise UserError(f"'{word}' joins conditions; {term.text} is none")
    return term.value


def _literal(word: str) -> int | float:
    return int(word) if word.isdecimal() and len(word) <= 18 else _as_float(word)


def _as_float(value: str | int) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if math.isinf(number):
        raise UserError("a number is too large to be compared")
    return number


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return repr(value)
    return f"{value:.12g}" if isinstance(value, float) else str(value)
