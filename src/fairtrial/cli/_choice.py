"""What cost-performance and recommend share: where the points come from, and how they are written."""

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
TRAINING = ("runs", "seeds", "jobs", "retry_failed", "replace")
"""Options that only matter when a family is trained, and ask for it."""

_SOURCE = (
    click.argument("study", required=False),
    click.option("--configs", metavar="FILE", help="Points from a YAML, JSON or CSV file instead of a study."),
    click.option("--train", is_flag=True, help="Train the default family: LoRA of rank 8, 16, 32, 64, and full."),
    click.option("--gpu", default="a100-80gb", show_default=True, metavar="CARD", help="Card to price them on."),
    click.option("--prices", metavar="FILE", help="Prices of your own: a dated YAML file."),
    click.option("--device", metavar="CARD", help="Card that the hours were measured on.  [default: as recorded]"),
    click.option("--metric", metavar="NAME[:max|min]", help="Metric to judge by.  [default: the study's; accuracy]"),
    click.option("--level", type=float, default=0.95, show_default=True, help="Confidence level of intervals."),
)
_TRAINING = (
    click.option(
        "--set", "settings", multiple=True, metavar="NAME=VALUE", help="When training: an option of finetune."
    ),
    click.option("--runs", type=int, help=f"When training: runs per configuration.  [default: {RUNS}]"),
    click.option("--seeds", metavar="N|LIST", help="The same, or a list of your own such as 1,2,3."),
    click.option("--jobs", type=click.IntRange(min=1), help="Processes at once.  [default: number of cores]"),
    click.option("--retry-failed", is_flag=True, help="Also run cells that failed before."),
    click.option("--replace", is_flag=True, help="Archive the family's runs and make them anew."),
)


def with_points(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that say where points come from and how a family is trained."""
    for option in reversed((*_SOURCE, *_TRAINING)):
        function = option(function)
    return function


@contextlib.contextmanager
def points_from(
    out: Output, *, study: str | None, configs: str | None, train: bool, prices: str | None, device: str | None,
    metric: str | None, level: float, settings: Sequence[str], **training: Any,
) -> Iterator[tuple[Source, LabConfig]]:  # fmt: skip
    """The source and how to train, with progress while it lasts."""
    from fairtrial.api.pricing.points import Source

    asked = {**{word: training[word] for word in TRAINING}, "set": settings or None}
    given = [f"--{word.replace('_', '-')}" for word, value in asked.items() if value is not None and value is not False]
    if given and (study or configs):
        raise UsageError(f"{', '.join(given)}: only when the default family is trained", hint="Leave it out.")
    source = Source(study, configs, train or bool(given), metric, device, prices, dict(pairs(settings)))
    if configs:  # nothing is read from a store, so none is named
        from fairtrial.api.lab.arms import LabConfig

        yield source, LabConfig(level=level)
        return
    with lab_terms(out, RUNS, metric=None, direction=None, level=level, study=None, **training) as terms:
        yield source, terms


def with_interval(estimate: Estimate) -> str:
    """A value, and its limits where there are any."""
    return f"{shown_value(estimate.value)} {interval_words(estimate)}".rstrip()


def flat_point(row: Mapping[str, Any]) -> dict[str, Any]:
    """A point for spreadsheets: its settings are columns of their own."""
    plain = {name: value for name, value in row.items() if name != "settings"}
    return flat({**plain, **{f"setting_{name}": value for name, value in row["settings"].items()}})
