"""Run any program. This recipe applies Fairtrial to code that does not import it.

`{seed}`, `{run_dir}`, `{variant}` and the variant's values are substituted into each argument separately; no shell is
involved. `{env:NAME}` is read from the environment when the program starts and is never recorded. Metrics come from a
JSONL or CSV file that the program writes, or from a program that calls `fairtrial.run()`, which joins this run.
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

SUMMARY = "Run any program, with placeholders in its arguments filled in per variant and seed."
REQUIRES = ()
EXTRA = None
METRIC = None
EXAMPLE = {
    "variants": {"base": {"lr": 0.1}, "new": {"lr": 0.2}},
    "options": {
        "argv": ["python", "train.py", "--lr", "{lr}", "--seed", "{seed}", "--out", "{run_dir}/out.jsonl"],
        "metrics": "{run_dir}/out.jsonl",
    },
}
BUILT_IN = ("seed", "run_dir", "variant")
SUFFIXES = (".jsonl", ".ndjson", ".csv")
SEED_READ = b'"event":"seed_read"'
"""The event as the recorder writes it to `events.jsonl`, byte for byte."""


class Options(BaseOptions):
    free_values: ClassVar[str | None] = "values"
    fills_environment: ClassVar[bool] = True

    argv: tuple[str, ...] = option((), "The program and its arguments, with {placeholders}.", role=Role.PROGRAM)
    values: dict[str, str] = option({}, "Values for the placeholders; variants set them.", role=Role.PROGRAM)
    metrics: str | None = option(
        None,
        "JSONL or CSV file that the program writes; relative to its working directory; placeholders allowed.",
        role=Role.PROGRAM,
    )
    step_column: str = option("step", "Column or key of the metrics file that contains the step.", role=Role.PROGRAM)
    cwd: str | None = option(None, "Working directory of the program; default: that of the launch.", role=Role.PROGRAM)
    best_metric: str | None = option(
        None,
        "Metric that selects the best checkpoint, for programs that call fairtrial.run().",
        role=Role.SELECTION,
    )
    best_mode: Literal["max", "min"] | None = option(
        None, "Whether higher or lower is better for --best-metric.", role=Role.SELECTION
    )

    @field_validator("values", mode="before")
    @classmethod
    def _as_text(cls, values: Any) -> Any:
        """Convert values to text, so that 0.1 in a study file equals 0.1 on the command line."""
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
            raise ValueError("argv: pass the program after '--', for example: -- python train.py --seed {seed}")
        texts = [*self.argv, self.metrics or ""]
        wanted = {name for text in texts for name in placeholders(text)}
        missing = sorted(wanted - set(self.values) - set(BUILT_IN))
        unused = sorted(set(self.values) - wanted)
        problems = [f"placeholder {{{name}}} has no value" for name in missing]
        problems += [f"value '{name}' has no placeholder {{{name}}}" for name in unused]
        if needs_environment(self.metrics or ""):
            problems.append("metrics: the file name is recorded, so it cannot contain {env:NAME}")
        if problems:
            raise ValueError("; ".join(problems))
        return self


def execute(options: Options, context: RunContext, logger: RunLogger) -> None:
    folder = Path(options.cwd or Path.cwd())
    if not folder.is_dir():
        raise UserError(f"the folder {folder} does not exist", hint="Check --cwd.")
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
    """Return whether the program read its seed from `fairtrial.run()`. Call this after the program has ended."""
    with events.open("rb") as lines:
        return any(SEED_READ in line for line in lines)


def _run_with_metrics(
    program: Program, folder: Path, options: Options, values: Mapping[str, Any], context: RunContext, logger: RunLogger
) -> None:
    """Run the program and log the rows of its metrics file, if it has one, while it runs.

    A metrics path that is the same for every run is locked while the program runs, and the file is then moved into the
    run directory.
    """
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
