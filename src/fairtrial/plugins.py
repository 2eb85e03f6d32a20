"""The public API for plug-in authors. Fairtrial's own recipes and launchers import only this module from Fairtrial.

A plug-in is one file of your package and one line in its `pyproject.toml`. `docs/plugins.md` shows one of each kind,
and `fairtrial.testing` has the checks that each must pass. This module stays compatible within a major version.

For every kind:

    errors           the exceptions: raise `errors.UserError`, with a hint, for an error that the user can fix
    UserError        the same exception, imported directly
    cautions         warnings that accompany a result: `context.cautions.append(cautions.INERT_OPTION.fill(…))`

A recipe is a module with SUMMARY, REQUIRES, EXTRA, METRIC, Options, and `build` or `execute`:

    Options          base class for the options of a recipe that does the whole run itself, in `execute`
    LoopOptions      base class for the options of a recipe that returns a Trainable from `build`
    TorchOptions     the same for a recipe that trains on a chosen device
    option, Role     declare an option, and what kind of setting it is
    Metric           the metric that the recipe is judged by, and its direction
    Need             another run that must be complete first, such as a teacher
    References       reference scores of a random policy and of a human
    RunContext       the environment of a run: its random streams, folder, data and cache
    RunLogger        records the metrics and checkpoints of `execute`
    Streams          named random streams, the same for every variant of a seed
    Trainable        what `build` returns: a model that is trained one step at a time
    Stack            several Trainables that are stepped together
    StepSize         how much data one step processes
    LoopEvents       marks the phases of a step: `with events.phase("forward"): …`
    Observer         watches the training loop and never changes it
    Dataset, Cache   data that are prepared once per store

A launcher is a module with SUMMARY, REQUIRES, EXTRA, Options and `open_launcher(request)`:

    Launcher         what `open_launcher` returns: it runs tasks on some engine
    LauncherOptions  base class for its settings, which the user passes as `--with key=value`
    LaunchRequest    the argument of `open_launcher`
    Exit, Outcome    how the process of a cell ended, and the status that it reported
    Described        what a launch would do, for `--dry-run`
    jobs             starts and stops job processes, and makes a launcher from any engine with a queue

Each of the other kinds is an instance of one class:

    Reader           reads files of another tool for `--from`; yields an ImportedRun per run
    ImportedRun      a run as another tool recorded it
    open_runs        opens paths with the reader that recognizes them
    SummaryType      turns the curve of a run into the one number that is compared
    Method           tests a difference; returns an Inference
    Inference        a difference with its confidence limits and p-values
    Adjustment       adjusts several comparisons for multiple testing
    AnalysisChart    charts that `analyze --plots` writes
    charts           the frame, axes and style that all charts share
    OutputFormat     a way to write a result
    with_output      adds --format, --output, --store and --quiet to a `click.Command`
"""

from __future__ import annotations

import importlib
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairtrial.api.comparing.analysis_charts import AnalysisChart
    from fairtrial.cli._output import with_output
    from fairtrial.core import cautions, errors
    from fairtrial.core.errors import UserError
    from fairtrial.core.options import LoopOptions, Options, Role, TorchOptions, option
    from fairtrial.core.readers import ImportedRun, Reader, open_runs
    from fairtrial.core.runs import Outcome
    from fairtrial.core.scores import References
    from fairtrial.core.specs import Metric, Need
    from fairtrial.core.streams import Streams
    from fairtrial.core.training import (
        Cache,
        Dataset,
        LoopEvents,
        Observer,
        RunContext,
        RunLogger,
        Stack,
        StepSize,
        Trainable,
    )
    from fairtrial.launch import jobs
    from fairtrial.launch.contract import Described, Exit, Launcher, LaunchRequest
    from fairtrial.launch.contract import EngineOptions as LauncherOptions
    from fairtrial.report import charts
    from fairtrial.report.formats import OutputFormat
    from fairtrial.stats.adjustments import Adjustment
    from fairtrial.stats.inference import Inference, Method
    from fairtrial.stats.summaries import SummaryType

_HOMES = {
    "Adjustment": "fairtrial.stats.adjustments:Adjustment",
    "AnalysisChart": "fairtrial.api.comparing.analysis_charts:AnalysisChart",
    "Cache": "fairtrial.core.training:Cache",
    "Dataset": "fairtrial.core.training:Dataset",
    "Described": "fairtrial.launch.contract:Described",
    "Exit": "fairtrial.launch.contract:Exit",
    "ImportedRun": "fairtrial.core.readers:ImportedRun",
    "Inference": "fairtrial.stats.inference:Inference",
    "LaunchRequest": "fairtrial.launch.contract:LaunchRequest",
    "Launcher": "fairtrial.launch.contract:Launcher",
    "LauncherOptions": "fairtrial.launch.contract:EngineOptions",
    "LoopEvents": "fairtrial.core.training:LoopEvents",
    "LoopOptions": "fairtrial.core.options:LoopOptions",
    "Method": "fairtrial.stats.inference:Method",
    "Metric": "fairtrial.core.specs:Metric",
    "Need": "fairtrial.core.specs:Need",
    "Observer": "fairtrial.core.training:Observer",
    "Options": "fairtrial.core.options:Options",
    "Outcome": "fairtrial.core.runs:Outcome",
    "OutputFormat": "fairtrial.report.formats:OutputFormat",
    "Reader": "fairtrial.core.readers:Reader",
    "References": "fairtrial.core.scores:References",
    "Role": "fairtrial.core.options:Role",
    "RunContext": "fairtrial.core.training:RunContext",
    "RunLogger": "fairtrial.core.training:RunLogger",
    "Stack": "fairtrial.core.training:Stack",
    "StepSize": "fairtrial.core.training:StepSize",
    "Streams": "fairtrial.core.streams:Streams",
    "SummaryType": "fairtrial.stats.summaries:SummaryType",
    "TorchOptions": "fairtrial.core.options:TorchOptions",
    "Trainable": "fairtrial.core.training:Trainable",
    "UserError": "fairtrial.core.errors:UserError",
    "cautions": "fairtrial.core.cautions",
    "charts": "fairtrial.report.charts",
    "errors": "fairtrial.core.errors",
    "jobs": "fairtrial.launch.jobs",
    "open_runs": "fairtrial.core.readers:open_runs",
    "option": "fairtrial.core.options:option",
    "with_output": "fairtrial.cli._output:with_output",
}
"""Where each name is defined. Names are imported on first use: a recipe does not load SciPy, nor a reader Click."""

__all__ = [
    "Adjustment",
    "AnalysisChart",
    "Cache",
    "Dataset",
    "Described",
    "Exit",
    "ImportedRun",
    "Inference",
    "LaunchRequest",
    "Launcher",
    "LauncherOptions",
    "LoopEvents",
    "LoopOptions",
    "Method",
    "Metric",
    "Need",
    "Observer",
    "Options",
    "Outcome",
    "OutputFormat",
    "Reader",
    "References",
    "Role",
    "RunContext",
    "RunLogger",
    "Stack",
    "StepSize",
    "Streams",
    "SummaryType",
    "TorchOptions",
    "Trainable",
    "UserError",
    "cautions",
    "charts",
    "errors",
    "jobs",
    "open_runs",
    "option",
    "with_output",
]


def __getattr__(name: str) -> Any:
    if name == "CpuOptions":
        text = "fairtrial.plugins.CpuOptions is deprecated: use TorchOptions, and let the user choose the device"
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        return importlib.import_module("fairtrial.core.options").CpuOptions
    if name not in _HOMES:
        raise AttributeError(f"module 'fairtrial.plugins' has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    home = importlib.import_module(module)
    return getattr(home, attribute) if attribute else home
