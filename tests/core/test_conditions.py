"""Conditions over a document: read by a small grammar, never evaluated as Python."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairtrial.core.conditions import DEEPEST, LONGEST, RowFilter, check
from fairtrial.core.errors import UsageError, UserError

DOCUMENT: dict[str, Any] = {
    "policy_lag_steps": {"max": 2, "mean": 1.25},
    "max_policy_lag_steps": 2,
    "buffer_depth": {"configured": 4, "min": None},
    "phases_ms": [{"name": "generate", "p50": 12.5}, {"name": "backward", "p50": 0}],
    "engine": "local",
    "smoke": False,
    "nothing": None,
    "odd-name": {"a.b": 7, "": 1},
    "large": 10**400,
    "strange": float("nan"),
    "endless": float("inf"),
}


@pytest.mark.parametrize(
    ("expression", "left", "right"),
    [
        ("policy_lag_steps.max<=max_policy_lag_steps", 2, 2),
        ("phases_ms.0.p50 > phases_ms[1].p50", 12.5, 0),
        ("engine == 'local'", "local", "local"),
        ("engine = 'local'", "local", "local"),
        ("max_policy_lag_steps=2", 2, 2),
        ('phases_ms[1].name != "generate"', "backward", "generate"),
        ("smoke == false", False, False),
        ("2 + 3 * 4 == 14", 14, 14),
        ("(2 + 3) * 4 == 20", 20, 20),
        ("10 - 3 - 2 == 5", 5, 5),
        ("12 / 4 / 3 == 1", 1, 1),
        ("-policy_lag_steps.max < --1", -2, 1),
        (".5e1 >= 5.", 5.0, 5.0),
        ('["odd-name"]["a.b"] == 7', 7, 7),
        ("['odd-name'][''] == 1", 1, 1),
        ("endless > 1e300", math.inf, 1e300),
        ("(1 < 2)", 1, 2),
    ],
)
def test_a_condition_that_holds_says_what_was_compared(expression: str, left: Any, right: Any) -> None:
    found = check(expression, DOCUMENT)
    assert found.holds and (found.left, found.right) == (left, right)
    assert found.text.startswith(f"{expression} holds: ") and found.unknown is None


@pytest.mark.parametrize(
    ("expression", "holds"),
    [
        ("1 < 2 and 2 < 1", False),
        ("1 < 2 or 2 < 1 and 2 < 1", True),  # and binds closer
        ("(1 < 2 or 2 < 1) and 2 < 1", False),
        ("not 1 < 2", False),
        ("not not 1 < 2", True),
        ("not smoke", True),
        ("not smoke and engine == 'local'", True),
        ("(1 < 2) == true", True),
    ],
)
def test_conditions_are_joined_as_one_reads_them(expression: str, holds: bool) -> None:
    assert check(expression, DOCUMENT).holds is holds


def test_a_condition_that_does_not_hold_shows_the_values() -> None:
    found = check("policy_lag_steps.max + 1 <= max_policy_lag_steps", DOCUMENT)
    assert not found.holds and (found.left, found.right) == (3, 2)
    assert found.text == "policy_lag_steps.max + 1 <= max_policy_lag_steps does not hold: 2 + 1 <= 2"


@pytest.mark.parametrize(
    "expression",
    [
        "buffer_depth.min >= 1", "not buffer_depth.min >= 1", "nothing == 0", "nothing != 0", "nothing == nothing",
        "-nothing < 1", "nothing * 0 == 0", "nothing", "not nothing", "nothing < 1 and 1 < 2", "nothing < 1 or 2 < 1",
        "strange < 1", "strange != strange", "endless - endless == 0", "nothing == 'x'",
    ],
)  # fmt: skip
def test_what_is_unknown_does_not_hold_and_says_so(expression: str) -> None:
    found = check(expression, DOCUMENT)
    assert not found.holds and found.unknown and " is unknown: " in found.text


def test_what_is_unknown_decides_nothing_that_is_decided_without_it() -> None:
    assert check("nothing < 1 or 1 < 2", DOCUMENT).holds
    decided = check("nothing < 1 and 2 < 1", DOCUMENT)
    assert not decided.holds and decided.unknown is None and "does not hold" in decided.text


@pytest.mark.parametrize(
    ("expression", "part"),
    [
        ("policy_lag.max <= 1", "did you mean 'policy_lag_steps.max'?"),
        ("engin == 'x'", "did you mean 'engine'?"),
        ("zzzzzz < 1", "no 'zzzzzz' in the document"),
        ("phases_ms[2].p50 > 1", "no 'phases_ms[2].p50'"),
        ("phases_ms[99999999999999999999].p50 > 1", "no 'phases_ms["),
        ("engine.x == 1", "no 'engine.x'"),
        ("1 < 2 or zzzzzz < 1", "no 'zzzzzz'"),  # what is decided already is read all the same
        ("engine < 1", "a string cannot be compared with a number"),
        ("engine < 'm'", "only numbers can be ordered"),
        ("smoke == 0", "a boolean cannot be compared with a number"),
        ("smoke + 1 == 1", "'+' needs numbers"),
        ("engine * 2 == 4", "'*' needs numbers"),
        ("phases_ms == 1", "phases_ms is not a single value"),
        ("policy_lag_steps", "is not a comparison"),
        ("1 + 1", "is not a comparison"),
        ("1 and 2", "'and' needs conditions"),
        ("not 1", "'not' needs conditions"),
        ("1 / phases_ms[1].p50 > 1", "division by zero"),
        ("large > 1", "too large"),
        ("9" * 400 + " > 1", "too large"),
        ("1 < 2 < 3", "comparisons cannot be chained"),
        ("1 <", "a value was expected before the end"),
        ("< 1", "a value was expected before '<'"),
        ("(1 < 2", "a ')' is missing"),
        ("1 < 2)", "unexpected ')'"),
        ("", "a value was expected"),
        ("1 = = 2", "a value was expected before '='"),
        ("1 = 2 = 3", "comparisons cannot be chained"),
        ("engine = local", "no 'local' in the document"),  # a misspelt path is never a text
        ("__import__('os').system('x') == 0", "cannot read '.system"),
        ("engine ; engine", "cannot read '; engine'"),
        ("1 < 2 # yes", "cannot read '# yes'"),
        ("'open == 1", "cannot read"),
        ("(" * (DEEPEST + 1) + "1" + ")" * (DEEPEST + 1) + " < 2", "parentheses"),
        ("1" + " + 1" * LONGEST + " < 2", "characters"),
    ],
)
def test_what_cannot_be_read_found_or_compared_is_one_sentence(expression: str, part: str) -> None:
    with pytest.raises(UserError) as caught:
        check(expression, DOCUMENT)
    assert part in str(caught.value)


# Random expressions, beside an evaluation that knows nothing of the grammar.


@dataclass(frozen=True)
class Node:
    """Written with parentheses around everything or around what needs them, and worked out by itself."""

    text: str
    value: Any  # a number, True, False, or None for unknown
    fails: bool = False
    binds: int = 9

    def inside(self, binds: int, generous: bool) -> str:
        return f"( {self.text})" if generous or self.binds < binds else self.text


ARITHMETIC = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
COMPARISONS = {"<=": operator.le, "<": operator.lt, ">=": operator.ge, ">": operator.gt, "==": operator.eq,
               "=": operator.eq, "!=": operator.ne}  # fmt: skip
BINDS = {"or": 1, "and": 2, "not": 3, "compare": 4, "+": 5, "-": 5, "*": 6, "/": 6, "minus": 7}
VALUES = {"a": 3, "b": {"c": -2.5, "d": [0, None, 7]}, "yes": True, "no": False, "null": None}

atoms = st.one_of(
    st.integers(0, 20).map(lambda n: Node(str(n), n)),
    st.sampled_from(["0.25", "1e2", "3."]).map(lambda text: Node(text, float(text))),
    st.sampled_from(
        [Node("a", 3), Node("b.c", -2.5), Node("b.d[0]", 0), Node("b.d.2", 7), Node("null", None), Node("b.d[1]", None)]
    ),
)


def computed(parts: tuple[str, Node, Node, bool]) -> Node:
    sign, left, right, generous = parts
    binds = BINDS[sign]
    text = f"{left.inside(binds, generous)}{sign} {right.inside(binds + 1, generous)}"
    fails = left.fails or right.fails
    if fails or left.value is None or right.value is None:
        return Node(text, None, fails, binds)
    if sign == "/" and right.value == 0:
        return Node(text, None, True, binds)
    return Node(text, ARITHMETIC[sign](left.value, right.value), False, binds)


def negative(parts: tuple[Node, bool]) -> Node:
    inner, generous = parts
    value = None if inner.value is None else -inner.value
    return Node(f"-{inner.inside(BINDS['minus'], generous)}", value, inner.fails, BINDS["minus"])


numbers = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(sorted(ARITHMETIC)), inner, inner, st.booleans()).map(computed),
        st.tuples(inner, st.booleans()).map(negative),
    ),
    max_leaves=5,
)


def compared(parts: tuple[str, Node, Node]) -> Node:
    sign, left, right = parts
    text = f"{left.inside(5, False)} {sign}{right.inside(5, False)}"
    fails = left.fails or right.fails
    known = not fails and left.value is not None and right.value is not None
    return Node(text, COMPARISONS[sign](left.value, right.value) if known else None, fails, BINDS["compare"])


def joined(parts: tuple[str, Node, Node, bool]) -> Node:
    """By the table of Kleene: the smaller of the two for and, the larger for or, unknown in the middle."""
    word, left, right, generous = parts
    binds = BINDS[word]
    text = f"{left.inside(binds, generous)} {word} {right.inside(binds + 1, generous)}"
    ranks = [1 if node.value is None else 2 * node.value for node in (left, right)]
    value = {0: False, 1: None, 2: True}[min(ranks) if word == "and" else max(ranks)]
    return Node(text, value, left.fails or right.fails, binds)


def denied(parts: tuple[Node, bool]) -> Node:
    inner, generous = parts
    value = None if inner.value is None else not inner.value
    return Node(f"not {inner.inside(BINDS['not'], generous)}", value, inner.fails, BINDS["not"])


conditions = st.recursive(
    st.one_of(
        st.tuples(st.sampled_from(sorted(COMPARISONS)), numbers, numbers).map(compared),
        st.sampled_from([Node("yes", True), Node("no", False), Node("true", True), Node("null", None)]),
    ),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["and", "or"]), inner, inner, st.booleans()).map(joined),
        st.tuples(inner, st.booleans()).map(denied),
    ),
    max_leaves=6,
)


@pytest.mark.slow
@settings(max_examples=600)
@given(conditions)
def test_random_conditions_are_worked_out_as_by_hand(condition: Node) -> None:
    if condition.fails:
        with pytest.raises(UserError, match="division by zero"):
            check(condition.text, VALUES)
        return
    found = check(condition.text, VALUES)
    assert found.holds is (condition.value is True)
    assert (found.unknown is not None) is (condition.value is None)


PIECES = [*ARITHMETIC, *COMPARISONS, "and", "or", "not", "(", ")", "a", "b.c", "b.d[0]", "b", "null", "yes", "'x'", "7",
          "1e999", "9" * 30, "9" * 5000, "a[", "]", ".", "..", "'", "=", "\x00", "é", "[''", "['']", "a.b.c", "  "]  # fmt: skip
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.just(10**4000),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.slow
@settings(max_examples=600)
@given(
    st.one_of(st.text(max_size=40), st.lists(st.sampled_from(PIECES), max_size=12).map(" ".join),
              st.lists(st.sampled_from(PIECES), max_size=12).map("".join)),
    st.dictionaries(st.sampled_from(["a", "b", "null", "yes"]), json_values),
)  # fmt: skip
def test_garbage_is_a_user_error_and_nothing_else(expression: str, document: dict[str, Any]) -> None:
    try:
        found = check(expression, document)
    except UserError as error:
        assert str(error)
    else:
        assert isinstance(found.holds, bool) and found.text


def test_a_number_that_python_will_not_print_is_no_trouble() -> None:
    for expression in ("a", "a == 1", "a[0] == 1", "b == a[0]", "b"):
        with pytest.raises(UserError):
            check(expression, {"a": [10**5000], "b": 10**5000})


def test_the_longest_and_deepest_conditions_are_read() -> None:
    long = "1" + "+1" * ((LONGEST - 3) // 2)
    assert check(f"{long}>0"[:LONGEST], {}).holds
    assert check("(" * DEEPEST + "1" + ")" * DEEPEST + " < 2", {}).holds
    assert check("not " * (LONGEST // 5) + "true", {}).holds is (LONGEST // 5 % 2 == 0)


# Conditions that choose among rows.

ROWS: list[dict[str, Any]] = [
    {"run": "a.seed1", "seed": 1, "status": "completed", "wall_s": 2.5, "note": None, "options": {"lr": 0.1, "who": "Ann"},
     "final": {"eval/loss": 0.5, "best-of": 1}},
    {"run": "a.seed2", "seed": 2, "status": "diverged", "wall_s": 4.0, "note": "a and b", "options": {"lr": 0.2},
     "final": {"eval/loss": "NaN", "best-of": 2}},
    {"run": "b.seed3", "seed": 3, "status": "failed", "wall_s": None, "note": "1 or 2", "options": {"lr": "auto", "deep": {"n": 3}},
     "final": {}},
]  # fmt: skip


def number(value: Any) -> float:
    return float({"NaN": math.nan}[value] if isinstance(value, str) else value)


def seeds(text: str, rows: list[dict[str, Any]] = ROWS) -> list[int]:
    holds = RowFilter(text, nested=("options", "final"), as_number=number).over(rows)
    return [row["seed"] for row in rows if holds(row)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("seed=2", [2]),
        ("seed == 2", [2]),
        ("seed!=2", [1, 3]),
        (" seed >= 2.0 ", [2, 3]),
        ("status=Completed", [1]),
        ("status>completed", [2, 3]),  # texts have an order
        ("wall_s<3", [1]),
        ("wall_s!=4", [1, 3]),  # what is missing is different
        ("note!=x", [1, 2, 3]),
        ("note=a and b", [2]),
        ("note=1 or 2", [3]),
        ("note=a and seed", []),  # a name alone is no condition: this is a text
        ("lr=auto", [3]),
        ("lr>0.1", [2, 3]),  # as texts, where one is no number
        ("who=ann", [1]),
        ("eval/loss<1", [1]),
        ("eval/loss!=0.5", [2, 3]),
        ("best-of>=2", [2]),
        ("run=", []),
        ("run!=", [1, 2, 3]),
        ("seed=nan", []),
    ],
)
def test_the_short_form_takes_everything_behind_the_sign(text: str, expected: list[int]) -> None:
    assert seeds(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("seed=1 or seed=3", [1, 3]),
        ("status=failed or status=diverged", [2, 3]),
        ("status = 'failed' or lr == 0.1", [1, 3]),
        ("seed>1 and status!=failed", [2]),
        ("not status=completed", [2, 3]),
        ("not (seed=1 or seed=3)", [2]),
        ("(seed = 1)", [1]),
        ("note='a and b'", [2]),
        ("seed * 2 - 1 > 3", [3]),
        ("wall_s / seed = 2", [2]),
        ("1 / (seed - seed + 1) = 1", [1, 2, 3]),
        ("2 < seed", [3]),
        ("options.lr = 0.2", [2]),
        ("options.deep.n = 3", [3]),
        ("final['eval/loss'] < 1", [1]),
        ("['best-of'] = seed", [1, 2]),
        ("note != 'x' and seed < 3", [1, 2]),
    ],
)
def test_rows_are_chosen_by_whole_conditions_too(text: str, expected: list[int]) -> None:
    assert seeds(text) == expected


@pytest.mark.parametrize(
    "text", ["nonsense", "", "seed", "(seed=1", "seed ~ 1", "1 + 1", "not", "seed>2 and", "seed=1 or "]
)
def test_what_is_no_condition_of_either_form_is_refused_before_any_row_is_read(text: str) -> None:
    with pytest.raises(UsageError, match="invalid condition"):
        RowFilter(text)


@pytest.mark.parametrize("text", ["sed=1", "not sed=1", "(sed=1)", "options.lrr=0.1", "sed=1 or seed=2"])
def test_a_name_that_no_row_has_is_a_typing_error_and_without_rows_none(text: str) -> None:
    with pytest.raises(UserError, match="unknown name in a condition"):
        seeds(text)
    assert seeds(text, []) == []
