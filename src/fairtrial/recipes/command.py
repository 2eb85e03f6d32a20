"""Run any program: this is how Fairtrial is used on code that knows nothing of it.

`{seed}`, `{run_dir}`, `{variant}` and the values of the variant are filled into the arguments element by
element; there is no shell. `{env:NAME}` is filled from the environment when the program starts, and never recorded.
Metrics are read from a JSONL or CSV file that the program writes, or the program
calls `fairtrial.run()`, which joins this run.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import field_validator, model_validator

from fairtrial.plugins import Options as BaseOptions
from fairtrial.plugins import Role, RunContext, RunLogger, UserError, cautions, option
from fairtrial.recipes._metrics_file import MetricsFile
from fairtrial.recipes._program import (
    Program,
    fill,
    needs_environment,
    placeholders,
    run_program,
    take_turn,
    with_secrets,
)

SUMMARY = "Run any program, with its arguments filled in per variant and seed."
REQUIRES = ()
EXTRA = None
METRIC = None
EXAMPLE = {
    "variants": {"base": {"lr": 0.1}, "new": {"lr": 0.2}},
    "options": {
        "argv": ["python", "train.py", "--lr", "{lr}", "--seed", "{seed}"],
        "metrics": "{run_dir}/out.jsonl",
    },
}
BUILT_IN = ("seed", "run_dir", "variant")
SUFFIXES = (".jsonl", ".ndjson", ".csv")
SEED_READ = b'"event":"seed_read"'
"""As the recorder spells it in `events.jsonl`."""


class Options(BaseOptions):
    free_values: ClassVar[str | None] = "values"
    fills_environment: ClassVar[bool] = True

    argv: tuple[str, ...] = option((), "The program and its arguments, with {placeholders}.", role=Role.PROGRAM)
    values: dict[str, str] = option({}, "Values for the placeholders; variants set them.", role=Role.PROGRAM)
    metrics: str | None = option(
        None,
        "JSONL or CSV file that the program writes, relative to its folder; placeholders allowed.",
        role=Role.PROGRAM,
    )
    step_column: str = option("step", "The field of that file that counts steps.", role=Role.PROGRAM)
    cwd: str | None = option(None, "Folder to run in; default: where the launch was started.", role=Role.PROGRAM)
    best_metric: str | None = option(
        None,
        "Metric that judges the best checkpoint, for programs that call fairtrial.run().",
        role=Role.SELECTION,
    )
    best_mode: Literal["max", "min"] | None = option(
        None, "Whether higher or lower is better for --best-metric.", role=Role.SELECTION
    )

    @field_validator("values", mode="before")
    @classmethod
    def _as_text(cls, values: Any) -> Any:
        """A value is what the program is told: 0.1 in a file and 0.1 on the command line are the same."""
        return {name: str(value) for name, value in values.items()} if isinstance(values, dict) else values

    @field_validator("metrics")
    @classmethod
    def _is_a_file_of_metrics(cls, metrics: str | None) -> str | None:
        if metrics is not None and Path(metrics).suffix not in SUFFIXES:
            raise ValueError(f"must end in {' or '.join(SUFFIXES)}, not {metrics!r}")
        return metrics

    @model_validator(mode="after")
    def _placeholders_match(self) -> Options:
        if not self.argv:
            raise ValueError("argv: give the program after '--', for example: -- python train.py --seed {seed}")
        texts = [*self.argv, self.metrics or ""]
        wanted = {name for text in texts for name in placeholders(text)}
        missing = sorted(wanted - set(self.values) - set(BUILT_IN))
        unused = sorted(set(self.values) - wanted)
        problems = [f"placeholder {{{name}}} has no value" for name in missing]
        problems += [f"value '{name}' has no placeholder {{{name}}}" for name in unused]
        if needs_environment(self.metrics or ""):
            problems.append("metrics: the name of a file is recorded, so {env:NAME} cannot be in it")
        if problems:
            raise ValueError("; ".join(problems))
        return self


def execute(options: Options, context: RunContext, logger: RunLogger) -> None:
    folder = Path(options.cwd or Path.cwd())
    if not folder.is_dir():
        raise UserError(f"no folder {folder}", hint="Check --cwd.")
    given = {"seed": context.streams.root, "run_dir": str(context.run.root), "variant": context.variant}
    values = {**options.values, **given}
    program = Program(
        [fill(part, with_secrets(options.argv, options.values, values)) for part in options.argv],
        [fill(part, values) for part in options.argv],
    )
    _run_with_metrics(program, folder, options, values, context, logger)
    if not any("seed" in placeholders(part) for part in options.argv) and not _read_seed(context.run.events):
        context.cautions.append(cautions.SEED_NOT_PASSED.fill())


def _read_seed(events: Path) -> bool:
    """Whether the program asked `fairtrial.run()` for its seed; known once it has ended."""
    with events.open("rb") as lines:
        return any(SEED_READ in line for line in lines)


def _run_with_metrics(
    program: Program, folder: Path, options: Options, values: Mapping[str, Any], context: RunContext, logger: RunLogger
) -> None:
    """Run the program and follow the file of metrics that it writes, if it does."""
    if options.metrics is None:
        run_program(program, folder, None, context, logger)
        return
    path = folder / fill(options.metrics, values)
    if {"seed", "run_dir"} & set(placeholders(options.metrics)):
        run_program(program, folder, MetricsFile(path, options.step_column), context, logger)
        return
    context.cautions.append(cautions.SHARED_FILE.fill(file=options.metrics))
    with take_turn(path, context.should_stop):
        logger.begin_training()
        run_program(program, folder, MetricsFile(path, options.step_column), context, logger)
        if path.exists():
            shutil.move(path, context.run.root / f"program-{path.name}")
