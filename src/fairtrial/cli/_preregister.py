"""Turn the options of `research preregister` into the intent to register."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fairtrial.cli._many_values import ManyValuesCommand
from fairtrial.cli._source_options import rule_from
from fairtrial.core.errors import UsageError, unknown

if TYPE_CHECKING:
    from fairtrial.api.evidence.preregister import Intent
    from fairtrial.plan.study import Study

PLANNED = ("launch", "temperature", "alpha", "sweep", "compare", "ablation")
"""Commands that launch a study of variants and seeds."""


def intent_from(asked: Mapping[str, Any]) -> Intent:
    from fairtrial.api.comparing.analysis import Question
    from fairtrial.api.evidence.preregister import Intent
    from fairtrial.plan.study import read_study

    if asked["study"] and asked["command"]:
        raise UsageError("--study and --command cannot be used together")
    study = read_study(Path(asked["study"])) if asked["study"] else None
    study = study_of_command(asked["command"]) if asked["command"] else study
    summary = ("kind", "window", "percent", "percent_window", "points", "threshold")
    kept = ("direction", "alpha", "side", "sesoi", "method", "resamples", "unpaired", "family", "adjust")
    question = Question(
        **{name: asked[name] for name in kept},
        metrics=tuple(asked["metrics"]),
        summary=rule_from(*(asked[name] for name in summary)),
    )
    return Intent(
        study=study, command=asked["command"], derive=asked["derive_seeds"], control=asked["control"],
        candidates=list(asked["candidate"]), question=question, stopping_rule=asked["stopping_rule"],
        exclusions=list(asked["exclude"]),
    )  # fmt: skip


def study_of_command(text: str) -> Study:
    """Return the study that a command line would launch, without launching it."""
    from fairtrial.cli.app import cli

    study = None
    with contextlib.suppress(click.exceptions.Exit):  # --help: the parser has printed it
        study = _planned_study(cli, "fairtrial", _quietly(_words(text)))
    if study is None:
        raise UsageError(f"--command: '{text}' does not launch a study", hint=f"Use one of: {', '.join(PLANNED)}.")
    return study


def _planned_study(
    command: click.Command, name: str | None, words: list[str], parent: click.Context | None = None
) -> Study | None:
    """Parse the words with the command's own parser and return the study that it plans, without running it."""
    if isinstance(command, click.Group):
        names_command = bool(words) and not words[0].startswith("-")
        with command.make_context(name, [] if names_command else words, parent=parent) as context:
            if not names_command:
                return None
            name, chosen, rest = command.resolve_command(context, words)
            return _planned_study(chosen, name, rest, context) if chosen else None
    with command.make_context(name, words, parent=parent) as context:
        plan = command.plan if isinstance(command, ManyValuesCommand) else None
        return plan(**context.params) if plan else None


def _words(text: str) -> list[str]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"--command: {error}") from None
    words = words[1:] if words[:1] == ["fairtrial"] else words
    if not words or words[0] not in PLANNED:
        raise UsageError(f"--command: {unknown('command', words[0] if words else '', PLANNED)}")
    if (
        words[0] == "launch"
        and not any(word.endswith((".yaml", ".yml")) for word in words[1:2])
        and "--base-run-name" not in words
    ):
        raise UsageError("--command: a registered launch needs a name", hint="Add --base-run-name NAME to the command.")
    return words


def _quietly(words: list[str]) -> list[str]:
    """Add --quiet, so that the name of the store is not printed. Words after `--` belong to the user's program."""
    end = words.index("--") if "--" in words else len(words)
    return [*words[:end], "--quiet", *words[end:]]
