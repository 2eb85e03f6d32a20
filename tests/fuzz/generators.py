"""Inputs by kind: each is made from the seed, the kind and its number, and is the same everywhere."""

from __future__ import annotations

import fnmatch
import functools
from collections.abc import Callable, Sequence
from random import Random

import click

from tests.fuzz.cases import Case, kept_cases, workspace
from tests.fuzz.mutations import NOT_FILES, ODD_NUMBERS, ODD_WORDS, spoil_file, spoil_words

STORE_FILES = (
    "*metadata.json", "*metrics.jsonl", "*events.jsonl", "*study.json", "*looks.jsonl", "*index.json", "*.parquet",
    "*.arrow", "*.pt", "*log.txt", "*.pulse",
)  # fmt: skip
PROJECT_FILES = ("*artifact.yaml", "*.journal.jsonl", "*registrations/*", "*.cff", "*z.yaml")
BUNDLE_FILES = ("bundle/*", "bundle.zip")
SEPARATE = (
    "--debug",
    "--detach",
    "--follow",
    "-f",
    "--help",
    "-h",
    "--otlp",
    "--ab",
    "--run-test",
    "--anchor",
    "--watch",
)
"""Options that show a trace on purpose, do not end by themselves, or reach out of the folder of the case."""
NOT_FUZZED = ("doctor",)
"""It measures the machine, which takes seconds each time."""


@functools.cache
def seeds_of(kind: str) -> tuple[Case, ...]:
    """The valid inputs of a kind, from which others are made."""
    return tuple(case for case in kept_cases() if case.kind == kind and case.valid)


def generate(kind: str, number: int, seed: int) -> Case:
    """One input. Nothing but its arguments decides what it is."""
    rng = Random(f"{seed}/{kind}/{number}")
    return KINDS[kind](kind, rng)


# From files


def _spoiled(kind: str, rng: Random, patterns: Sequence[str]) -> Case:
    """A valid input with one or two of its files spoiled, and sometimes its command line."""
    case = rng.choice(seeds_of(kind))
    names = _files_of(case, patterns)
    files = dict(case.files)
    for name in {rng.choice(names) for _ in range(rng.choice((1, 1, 2)))}:
        files[name] = _spoiled_file(case, name, rng)
    argv = spoil_words(case.argv, rng, _fixed(case)) if rng.random() < 0.1 else case.argv
    return case.changed(files=files, argv=argv)


def _spoiled_file(case: Case, name: str, rng: Random) -> bytes | str:
    if rng.random() < 0.08:
        return rng.choice(NOT_FILES)
    return spoil_file(name, case.content(name), rng)


@functools.cache
def _workspace_files() -> tuple[str, ...]:
    files = (path for path in workspace().rglob("*") if path.is_file())
    return tuple(sorted(path.relative_to(workspace()).as_posix() for path in files))


def _files_of(case: Case, patterns: Sequence[str]) -> list[str]:
    known = {*case.files, *(name for name in _workspace_files() if _is_used(name, case.uses))}
    return sorted(name for name in known if any(fnmatch.fnmatch(name, pattern) for pattern in patterns))


def _is_used(name: str, uses: Sequence[str]) -> bool:
    return any(name == each or name.startswith(f"{each}/") for each in uses)


def _fixed(case: Case) -> int:
    """How many words name the command itself: those stay, so that the rest is reached."""
    return 2 if case.argv[0] in ("runs", "research", "profile", "launch", "train", "bench", "sweep") else 1


def _from(*patterns: str) -> Callable[[str, Random], Case]:
    return lambda kind, rng: _spoiled(kind, rng, patterns)


# Expressions and queries


NAMES = (
    "policy_lag_steps.max",
    "max_policy_lag_steps",
    "mode",
    "work.0.ms",
    "phases_ms",
    "seed",
    '["mode"]',
    "nothing",
)
SIGNS = ("<=", "<", ">=", ">", "==", "!=", "+", "-", "*", "/", "and", "or", "not", "(", ")", "=", "<>", ">>", "!", ".")
COLUMNS = ("status", "seed", "variant", "value", "wall_s", "options.steps", "effect", "report_accuracy", "nothing", "")
SQL_VALUES = (
    "1", "null", "map {'a': 1, 'b': 2}", "map {[1]: {'x': 1}}", "{'a': 1, 'b': [1, 2]}", "[1::hugeint, null]",
    "170141183460469231731687303715884105727::hugeint", "[170141183460469231731687303715884105727::hugeint]",
    "1.5::decimal(38, 10)", "[1.5::decimal(9, 2)]", "'\\xAA\\x00'::blob", "interval 1 month", "interval '-3 days'",
    "timestamp '2026-01-01 00:00:00'", "timestamptz '2026-01-01 00:00:00+01'", "timestamp 'infinity'",
    "date '5877642-06-25 (BC)'", "date '9999-12-31'", "time '12:00:00'", "uuid()", "'1101'::bit", "'nan'::double",
    "'inf'::float", "-0.0", "1e308 * 10", "true", "'\u2028'", "chr(27) || '[31m'", "'a' || chr(0)", "'' ", "[]", "{}",
    "struct_pack(a := [{'b': 1.5::decimal(4, 1)}])", "union_value(k := 1)", "'x'::enum('x', 'y')", "repeat('x', 5000)",
    "timetz '12:00:00+01'", "timestamp_ns '2026-01-01 00:00:00.123456789'", "340282366920938463463374607431768211455::uhugeint",
    "array_value(1, 2)", "row(1, 'a')", "lambda x: x", "(select 1)", "json('{\"a\": [1]}')", "range(5)", "'-infinity'::date",
)  # fmt: skip
SQL_FORMS = (
    "select {a} as x", "select {a} as x, {b} as x", "select {a} from runs", "select [{a}, {b}] as l",
    "select {{'k': {a}}} as s", "select map {{'k': {a}}} as m", "select run, {a} from metrics limit 3",
    "select count(*) from metrics where value > {a}", "values ({a}), ({b})", "select {a} union all select {b}",
    "copy (select {a}) to 'x.csv'", "pragma version", "select * from runs where study = {a}", "describe select {a}",
    "explain select {a}", "create table t as select {a} as x", "select * from 'results.csv'", "select {a}; select {b}",
    "set enable_external_access = true", "attach 'x.db'", "install httpfs", "select {a} from range(3)", "{a}",
    "select * from (select {a}) group by all", "select list({a}) from runs", "select {a} as \"a\nb\"",
)  # fmt: skip


def _expression(kind: str, rng: Random) -> Case:
    case = rng.choice(seeds_of(kind))
    words = [rng.choice(rng.choice((NAMES, SIGNS, SIGNS, ODD_NUMBERS, ODD_WORDS))) for _ in range(rng.randrange(1, 12))]
    condition = rng.choice((" ", "", " ")).join(words)
    if rng.random() < 0.1:
        condition = rng.choice(("(", "not ", "-", "1+", "a.", "a[0]")) * rng.choice((10, 100, 3000)) + condition
    if case.argv[0] == "profile":
        return case.changed(argv=(*case.argv[:3], condition))
    column, sign = rng.choice(COLUMNS), rng.choice(("=", "<", ">", "<=", ">=", "!=", "==", ">>", "", "=<", " = "))
    value = rng.choice((*ODD_NUMBERS, *ODD_WORDS, "completed", "1072"))
    where = condition if rng.random() < 0.3 else f"{column}{sign}{value}"
    return case.changed(argv=(*case.argv[:2], "--where", where))


def _query(kind: str, rng: Random) -> Case:
    case = rng.choice(seeds_of(kind))
    text = rng.choice(SQL_FORMS).format(a=rng.choice(SQL_VALUES), b=rng.choice(SQL_VALUES))
    if rng.random() < 0.1:
        place = rng.randrange(len(text) + 1)
        text = text[:place] + rng.choice((*ODD_WORDS, "(" * 200, "select ")) + text[place:]
    return case.changed(
        argv=("runs", "sql", text, "--format", rng.choice(("text", "json", "csv", "markdown", "latex")))
    )


# Flags


@functools.cache
def commands() -> tuple[tuple[tuple[str, ...], click.Command], ...]:
    """Every command of the program with the words that name it."""
    from fairtrial.cli.app import COMMANDS, cli

    context = click.Context(cli, info_name="fairtrial")
    named: list[tuple[tuple[str, ...], click.Command]] = []
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            inner = click.Context(command, parent=context, info_name=name)
            for word in command.list_commands(inner):
                below = None if word.startswith("./") else command.get_command(inner, word)
                if below is not None:
                    named.append(((name, word), below))
        elif name not in NOT_FUZZED:
            named.append(((name,), command))
    return tuple(named)


def _flags(kind: str, rng: Random) -> Case:
    """A command with some of its options, most of them with values of their type."""
    words, command = rng.choice(commands())
    argv = list(words)
    options = [each for each in command.params if isinstance(each, click.Option) and not {*each.opts} & {*SEPARATE}]
    for parameter in command.params:
        if isinstance(parameter, click.Argument) and rng.random() < 0.9:
            argv += [_argument(words, rng) for _ in range(rng.choice((1, 1, 2)) if parameter.nargs == -1 else 1)]
    for option in rng.sample(options, min(len(options), rng.choice((0, 1, 2, 3, 5)))):
        flag = rng.choice([*option.opts, *option.secondary_opts])
        argv += [flag] if option.is_flag else [flag, *(_value(option, rng) for _ in range(max(1, option.nargs)))]
    if words[0] == "launch" and rng.random() < 0.7:
        argv.append("--dry-run")
    uses = ("runs", "study.yaml", "results.csv", "configs.yaml", "prices.yaml", "analyze.yaml", "baseline.json")
    return Case(kind, tuple(argv), uses)


def _argument(words: tuple[str, ...], rng: Random) -> str:
    usual = {
        ("launch",): "study.yaml", ("runs", "sql"): "select * from runs", ("profile", "check"): "mode == 'rollout'",
        ("power",): "s", ("sweep", "fake"): "x",
    }.get(words)  # fmt: skip
    likely = ("s", "s/*", "s/base.seed1072", "p", "q", "s:base", "s:new", "study.yaml", "results.csv", usual or "s")
    return rng.choice(ODD_WORDS) if rng.random() < 0.25 else rng.choice(likely)


def _value(option: click.Option, rng: Random) -> str:
    """A value that fits in two cases of three; numbers beyond their limits, and odd words, in the rest."""
    kind = option.type
    if rng.random() < 0.3:
        return rng.choice((*ODD_NUMBERS, *ODD_WORDS))
    if isinstance(kind, click.Choice):
        return str(rng.choice(list(kind.choices)))
    name = (option.name or "").lower()
    if isinstance(kind, (click.types.IntParamType, click.types.FloatParamType)) or option.metavar in (
        "INTEGER",
        "NUMBER",
    ):
        return rng.choice(("1", "2", "3", "5", "0.5", "0.05", "0.9", "10", *ODD_NUMBERS))
    if option.metavar and "|" in option.metavar and option.metavar.islower():
        return rng.choice(option.metavar.split("|"))
    by_name = {
        "config": "analyze.yaml", "source": "results.csv", "prices": "prices.yaml", "configs": "configs.yaml",
        "baseline": "baseline.json", "base": "study.yaml", "metric": "report_accuracy", "control": "base",
        "candidate": "new", "study": "s", "seeds": "3", "param": "effect=0:1:0.5", "variant": "v:effect=0.1",
        "store": "runs", "output": "out.json", "strategies": "kd,mse", "components": "temperature,attention_loss",
        "gpu": "t4", "pilot": "s", "device": "cpu", "benchmark": "random_score=0", "where": "seed>1", "window": "0:10",
        "task_column": "seed", "since": "s/base.seed1072", "plots": "charts",
    }  # fmt: skip
    if name in by_name and rng.random() < 0.8:
        return by_name[name]
    return rng.choice(("x", "s", "1,2,3", "a=1", "a:b=1", "1:2:0.5", "log:1e-3:1:3", "0:1:1e-12", "1e9", *ODD_WORDS))


def _argument_files(kind: str, rng: Random) -> Case:
    """What is not an ordinary file, or not of that kind, in the place of every file that a command reads."""
    case = rng.choice(seeds_of(kind))
    places = [place for place, word in enumerate(case.argv) if _file_in(word, case)]
    name = _file_in(case.argv[rng.choice(places)], case)
    other = rng.choice([each for each in _workspace_files() if (workspace() / each).stat().st_size < 100_000])
    instead: bytes | str = rng.choice(
        (*NOT_FILES, (workspace() / other).read_bytes(), rng.randbytes(300), b"\0" * 1000, b"", b"x" * (3 << 20))
    )
    return case.changed(files={**case.files, name: instead})


def _file_in(word: str, case: Case) -> str:
    """The file that a word of a command line names; `file.py:attribute` names one too."""
    name = word.partition(":")[0]
    return name if name and ((workspace() / name).is_file() or name in case.files) else ""


KINDS: dict[str, Callable[[str, Random], Case]] = {
    "flags": _flags,
    "study": _from("*.yaml"),
    "options": _from("analyze.yaml", "options.yaml"),
    "table": _from("results.*"),
    "points": _from("configs.*", "prices.yaml"),
    "store": _from(*STORE_FILES),
    "bundle": _from(*BUNDLE_FILES),
    "manifest": _from(
        "*manifest.json", "*headlines.json", "*ro-crate-metadata.json", "*registrations/*", "*analysis.json"
    ),
    "project": _from(*PROJECT_FILES),
    "snapshot": _from("*snapshot.json", "*.snap.json", "baseline.json", "*lanes.json"),
    "expression": _expression,
    "sql": _query,
    "file": _argument_files,
}
SHARES = {
    "flags": 24, "study": 10, "options": 3, "table": 15, "points": 7, "store": 14, "bundle": 5, "manifest": 4,
    "project": 4, "snapshot": 6, "expression": 4, "sql": 4, "file": 6,
}  # fmt: skip
"""Of a hundred inputs; what takes foreign files, and what people type, gets the most."""


def plan(inputs: int, kinds: Sequence[str]) -> list[tuple[str, int]]:
    """Which inputs to make: kinds by their share, each numbered from 0."""
    whole = sum(SHARES[kind] for kind in kinds)
    counts = {kind: inputs * SHARES[kind] // whole for kind in kinds}
    counts[kinds[0]] += inputs - sum(counts.values())
    return [(kind, number) for kind in kinds for number in range(counts[kind])]
