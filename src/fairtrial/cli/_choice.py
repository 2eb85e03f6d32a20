"""Shared by `cost-performance` and `recommend`: the options that choose the points, and how points are printed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from fairtrial.cli._lab import flat, interval_words, lab_terms
from fairtrial.cli._output import Output
from fairtrial.cli._recipe_options import pairs
from fairtrial.core.errors import UsageError
from fairtrial.core.findings import Estimate
from fairtrial.core.formatting import shown_value

if TYPE_CHECKING:
    from fairtrial.api.lab.arms import LabConfig
    from fairtrial.api.pricing.points import Source

RUNS = 3
FROM_WHERE = {
    "Which configurations": "--configs --train --metric --level | --set --runs --seeds --jobs --retry-failed --replace",
    "Prices": "--gpu --prices --device",
}
TRAINING = ("runs", "seeds", "jobs", "retry_failed", "replace")
"""Options that apply only when the default family is trained. Giving one of them requests the training."""

_SOURCE = (
    click.argument("study", required=False),
    click.option("--configs", metavar="FILE", help="Read the points from a YAML, JSON or CSV file instead of a study."),
    click.option(
        "--train", is_flag=True, help="Train the default family: LoRA of rank 8, 16, 32 and 64, and full fine-tuning."
    ),
    click.option(
        "--gpu", default="a100-80gb", show_default=True, metavar="CARD", help="GPU to price the configurations on."
    ),
    click.option("--prices", metavar="FILE", help="Dated YAML file with your own prices."),
    click.option("--device", metavar="CARD", help="Device that the hours were measured on.  [default: as recorded]"),
    click.option("--metric", metavar="NAME[:max|min]", help="Metric to judge by.  [default: the study's; accuracy]"),
    click.option("--level", type=float, default=0.95, show_default=True, help="Confidence level of intervals."),
)
_TRAINING = (
    click.option(
        "--set", "settings", multiple=True, metavar="NAME=VALUE", help="When training: set an option of finetune."
    ),
    click.option("--runs", type=int, help=f"When training: runs per configuration.  [default: {RUNS}]"),
    click.option("--seeds", metavar="N|LIST", help="The same as --runs, or a list of seeds such as 1,2,3."),
    click.option(
        "--jobs", type=click.IntRange(min=1), help="Number of parallel processes.  [default: number of cores]"
    ),
    click.option("--retry-failed", is_flag=True, help="Also rerun cells that failed before."),
    click.option("--replace", is_flag=True, help="Archive the existing runs of the family and train them again."),
)


def with_points(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that choose the points and how the default family is trained."""
    for option in reversed((*_SOURCE, *_TRAINING)):
        function = option(function)
    return function


@contextlib.contextmanager
def points_from(
    out: Output, *, study: str | None, configs: str | None, train: bool, prices: str | None, device: str | None,
    metric: str | None, level: float, settings: Sequence[str], **training: Any,
) -> Iterator[tuple[Source, LabConfig]]:  # fmt: skip
    """Yield the source of the points and the training configuration; show progress while the context is open."""
    from fairtrial.api.pricing.points import Source

    asked = {**{word: training[word] for word in TRAINING}, "set": settings or None}
    given = [f"--{word.replace('_', '-')}" for word, value in asked.items() if value is not None and value is not False]
    if given and (study or configs):
        raise UsageError(f"{', '.join(given)}: only allowed when the default family is trained", hint="Remove it.")
    source = Source(study, configs, train or bool(given), metric, device, prices, dict(pairs(settings)))
    if configs:  # no store is read, so its name is not printed
        from fairtrial.api.lab.arms import LabConfig

        yield source, LabConfig(level=level)
        return
    with lab_terms(out, RUNS, metric=None, direction=None, level=level, study=None, **training) as terms:
        yield source, terms


def with_interval(estimate: Estimate) -> str:
    """Return the value, followed by its interval if it has one."""
    return f"{shown_value(estimate.value)} {interval_words(estimate)}".rstrip()


def flat_point(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a point as a flat row for spreadsheets, with one column per setting."""
    plain = {name: value for name, value in row.items() if name != "settings"}
    return flat({**plain, **{f"setting_{name}": value for name, value in row["settings"].items()}})
