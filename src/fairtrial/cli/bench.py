"""fairtrial bench"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fairtrial.cli._help import HelpPage
from fairtrial.cli._output import Output, with_output
from fairtrial.cli._progress import showing_progress
from fairtrial.cli._recipe_group import RecipeGroup
from fairtrial.cli._recipe_options import given_values, pairs
from fairtrial.cli._signals import stopping
from fairtrial.cli._streams import output_kept_free
from fairtrial.core.errors import EXIT_CHECK, EXIT_OK, UsageError, UserError
from fairtrial.core.options import not_benched
from fairtrial.core.registry import LoadedRecipe
from fairtrial.core.specs import FIXED_SEEDS, MOST_SEED

if TYPE_CHECKING:
    from fairtrial.api.benchmarking.bench_pairs import SpeedPair
    from fairtrial.api.benchmarking.bench_runs import BenchTerms, Show

Number = TypeVar("Number", int, float)

OWN_OPTIONS = (
    click.Option(
        ["--max-batches"], type=int, help="Number of training steps.  [default: 200, or all if training is shorter]"
    ),
    click.Option(["--warmup-batches"], type=int, help="Warm-up steps to discard.  [default: until times are steady]"),
    click.Option(["--run-validation"], is_flag=True, help="Also run evaluations, as training does."),
    click.Option(
        ["--sample-ratio"], type=float, help="Run this fraction of an epoch (0.01 to 1) and extrapolate to a full one."
    ),
    click.Option(["--enable-profiling"], is_flag=True, help="Also write a trace of a few steps, for Perfetto."),
    click.Option(
        ["--trace-dir"], type=click.Path(path_type=Path), metavar="FOLDER", help="Folder for traces.  [default: traces]"
    ),
    click.Option(
        ["--enable-resource-monitoring"], is_flag=True, help="Also monitor CPU, memory, context switches and GPU."
    ),
    click.Option(["--batch-sizes"], metavar="N,N,…", help="Also time these batch sizes, interleaved."),
    click.Option(["--learning-rates"], metavar="X,X,…", help="Also try these learning rates on three seeds."),
    click.Option(["--estimate-noise-scale"], is_flag=True, help="Also measure the gradient noise scale."),
    click.Option(
        ["--whole-steps"], is_flag=True, help="Time whole steps, not phases, which needs fewer GPU synchronizations."
    ),
    click.Option(["--trials/--no-trials"], default=None, help="Try out possible speed-ups.  [default: on]"),
    click.Option(
        ["--save"], type=click.Path(path_type=Path), metavar="FILE", help="Save this measurement as a baseline."
    ),
    click.Option(
        ["--baseline"],
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Compare with a saved measurement; exit with code 3 if this one is slower.",
    ),
    click.Option(
        ["--ab"],
        nargs=2,
        metavar="REV REV",
        help="Compare two git revisions, interleaved; exit with code 3 if the second is slower.",
    ),
    click.Option(
        ["--against"],
        metavar="KEY=VALUE,…",
        help="Compare the given options with these, interleaved; exit with code 3 if these are slower.",
    ),
    click.Option(
        ["--processes"],
        type=click.IntRange(min=1),
        help="Number of processes to measure, for --save and --baseline.  [default: 5]",
    ),
    click.Option(["--rounds"], type=int, help="Number of A B B A rounds.  [default: 8; 4 with --ab]"),
    click.Option(
        ["--margin"], type=float, help="Relative time difference that does not matter in a comparison.  [default: 0.05]"
    ),
    click.Option(["--seed"], type=click.IntRange(0, MOST_SEED), help=f"Random seed.  [default: {FIXED_SEEDS[0]}]"),
    click.Option(["--level"], type=float, default=0.95, show_default=True, help="Confidence level of intervals."),
)

MEASURING = (
    "warmup_batches", "run_validation", "sample_ratio", "enable_profiling", "trace_dir", "enable_resource_monitoring",
    "batch_sizes", "learning_rates", "estimate_noise_scale", "save", "baseline", "whole_steps",
    "trials",
)  # fmt: skip
"""Flags for a single measurement, which --ab and --against do not accept."""


def _body(recipe: LoadedRecipe) -> Callable[..., Any]:
    @with_output
    def bench_recipe(out: Output, **flags: Any) -> int:
        _check(flags)
        word, options = str(recipe.file or recipe.name), given_values(recipe.options, flags)
        out.name_store()
        with stopping() as should_stop, showing_progress(out, "bench") as show:
            terms = _terms(out, flags, should_stop, show)
            work = _compare if flags["ab"] or flags["against"] else _measure
            give = work(out, word, options, terms, flags)
        return give()  # after the progress bar is closed

    return bench_recipe


def _check(flags: Mapping[str, Any]) -> None:
    in_turns = [name for name in ("ab", "against") if flags[name]]
    if len(in_turns) == 2:
        raise UsageError("--ab and --against cannot be used together")
    given = [name for name in MEASURING if flags[name] or (name == "trials" and flags[name] is not None)]
    if in_turns and given:
        flag = given[0].replace("_", "-")
        raise UsageError(f"--{flag} cannot be used with --ab or --against", hint="Remove one of them.")
    needs = {
        "rounds": ("--ab and --against", in_turns),
        "processes": ("--save and --baseline", flags["save"] or flags["baseline"]),
        "margin": ("--baseline, --ab and --against", in_turns or flags["baseline"]),
    }
    for name, (what, is_there) in needs.items():
        if flags[name] is not None and not is_there:
            raise UsageError(f"--{name} is only for {what}")
    if flags["trace_dir"] and not flags["enable_profiling"]:
        raise UsageError("--trace-dir needs --enable-profiling")
    if flags["margin"] is not None and not 0 < flags["margin"] < 1:
        raise UserError(f"--margin must be between 0 and 1, not {flags['margin']:g}")
    if flags["save"] is not None:
        _check_place(flags["save"])


def _check_place(path: Path) -> None:
    """Fail before the measurement if its result could not be saved afterwards."""
    if path.is_dir() or not path.absolute().parent.is_dir() or not os.access(path.absolute().parent, os.W_OK):
        why = "it is a folder" if path.is_dir() else "the folder does not exist or is not writable"
        raise UserError(f"cannot write {path}: {why}", hint="Choose another --save.")


def _terms(out: Output, flags: Mapping[str, Any], should_stop: Callable[[], bool], show: Show) -> BenchTerms:
    from fairtrial.api.benchmarking.bench_runs import BenchTerms

    return BenchTerms(
        batches=flags["max_batches"], warmup=flags["warmup_batches"], validation=flags["run_validation"],
        whole_steps=flags["whole_steps"], sample_ratio=flags["sample_ratio"],
        trace_dir=(flags["trace_dir"] or Path("traces")) if flags["enable_profiling"] else None,
        monitor=flags["enable_resource_monitoring"], noise_scale=flags["estimate_noise_scale"],
        batch_sizes=_numbers("batch-sizes", flags["batch_sizes"], int),
        learning_rates=_numbers("learning-rates", flags["learning_rates"], float), trials=flags["trials"] is not False,
        seed=FIXED_SEEDS[0] if flags["seed"] is None else flags["seed"], level=flags["level"], store=out.store,
        tell=out.say, show=show, should_stop=should_stop,
    )  # fmt: skip


def _numbers(flag: str, text: str | None, kind: type[Number]) -> list[Number]:
    try:
        return [kind(word) for word in (text or "").split(",") if word.strip()]
    except ValueError:
        raise UsageError(f"--{flag}: '{text}' is not a comma-separated list of numbers such as 1,2,3") from None


def _measure(
    out: Output, recipe: str, options: Mapping[str, Any], terms: BenchTerms, flags: Mapping[str, Any]
) -> Callable[[], int]:
    from fairtrial.api.benchmarking.baselines import (
        PROCESSES,
        compare_with,
        further_processes,
        read_baseline,
        require_comparable,
        save_baseline,
    )
    from fairtrial.api.benchmarking.bench import bench
    from fairtrial.api.benchmarking.bench_runs import MARGIN
    from fairtrial.cli._bench_text import show_bench

    earlier = read_baseline(flags["baseline"]) if flags["baseline"] else None
    if earlier:
        require_comparable(earlier, recipe, options, terms)
    with output_kept_free():
        measured = out.command.answer(bench, recipe, options, terms)
    further, against = [], None
    if measured.sufficient and (earlier or flags["save"]):  # too few steady steps cannot be compared either
        further = further_processes(recipe, options, terms, flags["processes"] or PROCESSES)
        against = compare_with(earlier, measured, flags["margin"] or MARGIN, further) if earlier else None
    document = {**measured.to_dict(), "baseline": against.to_dict() if against else None}
    if against:
        document["cautions"] = [*document["cautions"], *against.cautions]
    out.command.add(document)

    def give() -> int:
        out.give(document, measured.phase_rows(), lambda console: show_bench(console, measured, against))
        if flags["save"]:
            save_baseline(measured, flags["save"], further)
            out.say(f"Wrote {flags['save']}")
        return EXIT_OK if measured.sufficient and not (against and against.regressed) else EXIT_CHECK

    return give


def _compare(
    out: Output, recipe: str, options: Mapping[str, Any], terms: BenchTerms, flags: Mapping[str, Any]
) -> Callable[[], int]:
    from fairtrial.api.benchmarking.bench_pairs import bench_revisions, bench_variants
    from fairtrial.cli._bench_text import show_pair
    from fairtrial.stats.speed import Speed

    how = {name: flags[name] for name in ("rounds", "margin") if flags[name] is not None}
    if flags["ab"]:
        speed_pair: SpeedPair = out.command.answer(bench_revisions, recipe, flags["ab"], options, terms, **how)
    else:
        changes = dict(pairs(flags["against"].split(",")))
        variants = {"as given": {}, flags["against"]: changes}
        with output_kept_free():
            speed_pair = out.command.answer(bench_variants, recipe, variants, options, terms, **how)

    def give() -> int:
        out.give(speed_pair.to_dict(), speed_pair.rows(), lambda console: show_pair(console, speed_pair))
        return EXIT_CHECK if speed_pair.compared.verdict is Speed.SLOWER else EXIT_OK

    return give


class BenchGroup(RecipeGroup):
    """Takes the same recipe options as `train`, except those that a benchmark does not use."""

    body = staticmethod(_body)
    own_options = OWN_OPTIONS
    recipe_examples = ("fairtrial bench {recipe} {flags} --save base.json", "fairtrial bench {recipe} --ab main HEAD")

    def without(self, recipe: LoadedRecipe) -> list[str]:
        return list(not_benched(recipe.options))


PAGE = HelpPage(
    {
        "What to measure": "--max-batches --batch-sizes --enable-profiling --enable-resource-monitoring"
        " --run-validation | --warmup-batches --sample-ratio --trace-dir --learning-rates --estimate-noise-scale"
        " --whole-steps --trials",
        "Is it faster?": "--save --baseline --ab --against --margin | --rounds --processes --level --seed",
    },
    (
        "fairtrial bench classify --batch-sizes 64,128,256",
        "fairtrial bench classify --against batch_size=256",
    ),
)


@click.group("bench", cls=BenchGroup, subcommand_metavar="RECIPE [OPTIONS]…", page=PAGE)
def command() -> None:
    """Measure what a training step of a recipe costs and where the time goes.

    Takes the options of train and runs real steps through the same training loop. The run is not recorded.
    `fairtrial bench RECIPE --help` shows the options of a recipe.
    """
