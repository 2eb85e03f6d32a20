"""What authors of plug-ins import. Fairtrial's own recipes and launchers use this module and nothing else of ours.

A plug-in is one file of your package and one line in its `pyproject.toml`; `docs/plugins.md` shows one of each kind,
and `fairtrial.testing` has the checks that each must pass. Everything here stays as it is within a major version.

For every kind:

    errors           the exceptions: raise `errors.UserError` for what a person can put right, with a hint
    UserError        that one by its own name
    cautions         sentences that go with a result: `context.cautions.append(cautions.INERT_OPTION.fill(…))`

A recipe is a module with SUMMARY, REQUIRES, EXTRA, METRIC, Options, and `build` or `execute`:

    Options          base of the options of a recipe that does the whole run itself, in `execute`
    LoopOptions      base of the options of a recipe whose steps the training loop takes, from `build`
    CpuOptions       the same for a recipe that trains on the processor
    TorchOptions     the same for a recipe that trains on a chosen device
    option, Role     declare one option, and say what kind of thing it changes
    Metric           what the recipe is judged by, and which way is good
    Need             another run that must be complete first, such as a teacher
    References       scores of a random policy and of a person
    RunContext       where a run happens: its streams, folder, data and cache
    RunLogger        what `execute` writes through
    Streams          named random streams, the same for every variant of a seed
    Trainable        what `build` returns: something that learns one step at a time
    Stack            several of them that are stepped together
    StepSize         what one step works through
    LoopEvents       phases of a step: `with events.phase("forward"): …`
    Observer         watches the loop and never changes it
    Dataset, Cache   data that are made once per store

A launcher is a module with SUMMARY, REQUIRES, EXTRA, Options and `open_launcher(request)`:

    Launcher         what that returns: it runs tasks somewhere
    LauncherOptions  base of its settings, which are given as `--with key=value`
    LaunchRequest    all that it is opened with
    Exit, Outcome    how a run came back, and what it says of itself
    Described        what a launch would do, for `--dry-run`
    jobs             starts and ends the processes of jobs, and makes a launcher of any engine with a queue

The other kinds are objects of one class each:

    Reader           reads files of another tool for `--from`; yields an ImportedRun per run
    ImportedRun      a run as another tool recorded it
    open_runs        what the reader of a path finds there
    SummaryType      turns a run's curve into the one number that is compared
    Method           judges a difference; returns an Inference
    Inference        a difference with its limits and p-values
    Adjustment       judges several comparisons together
    AnalysisChart    pictures that `analyze --plots` writes
    charts           the frame, axes and look that all charts share
    OutputFormat     a way to write a result
    with_output      adds --format, --output, --store and --quiet to a command, which is a `click.Command`
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairtrial.api.comparing.analysis_charts import AnalysisChart
    from fairtrial.cli._output import with_output
    from fairtrial.core import cautions, errors
    from fairtrial.core.errors import UserError
    from fairtrial.core.options import CpuOptions, LoopOptions, Options, Role, TorchOptions, option
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
    "CpuOptions": "fairtrial.core.options:CpuOptions",
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
"""Where each name is defined. It is imported when it is first used: a recipe needs no SciPy, a reader no Click."""

__all__ = [
    "Adjustment",
    "AnalysisChart",
    "Cache",
    "CpuOptions",
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
    if name not in _HOMES:
        raise AttributeError(f"module 'fairtrial.plugins' has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    home = importlib.import_module(module)
    return getattr(home, attribute) if attribute else home
