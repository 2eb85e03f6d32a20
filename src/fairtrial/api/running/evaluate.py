"""evaluate: re-evaluate checkpoints, with --confirm on held-out episodes or data, with a confidence interval."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fairtrial.api.running.existing_runs import not_damaged, require_all_existing
from fairtrial.api.running.planning import load_checked_recipe, require_needs
from fairtrial.api.running.recording import recorded
from fairtrial.api.running.train import plan_of_recorded
from fairtrial.core.cautions import REPORT_NOT_FRESH
from fairtrial.core.errors import StoreError, UserError, all_at_once
from fairtrial.core.findings import Estimate, FilledCaution
from fairtrial.core.options import parse_options, result_options
from fairtrial.core.results import Result
from fairtrial.core.runs import EVALUATION, Run, Status
from fairtrial.core.scores import NORMALIZED, References
from fairtrial.core.specs import Job
from fairtrial.core.training import as_floats
from fairtrial.jobs.run_session import rebuild
from fairtrial.record.checkpoints import Checkpoint, read_checkpoint
from fairtrial.record.metadata import HINT
from fairtrial.record.recorder import Recorder, saved_checkpoints
from fairtrial.record.store import Store, open_store
from fairtrial.record.top_checkpoints import list_top_checkpoints
from fairtrial.stats.sweeps import mean_of

BEST, LAST = "best", "last"
FRESH = 1
"""Index of the episode set that training never used; 0 is the set of its own report."""


@dataclass(frozen=True)
class CheckpointEvaluation:
    """The evaluation of one checkpoint of one run. `selected` is the value that the checkpoint was selected by."""

    run: Run
    checkpoint: str
    step: int
    metrics: Mapping[str, float]
    intervals: Mapping[str, Estimate]
    episodes: int | None
    fresh: bool
    selected: float | None = None
    gap: float | None = None
    """`selected` minus the new value; positive means that the checkpoint looked better when it was selected."""
    cautions: Sequence[FilledCaution] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "run": self.run.name,
            "checkpoint": self.checkpoint,
            "step": self.step,
            "metrics": dict(self.metrics),
            "intervals": {name: estimate.limits for name, estimate in self.intervals.items()},
            "episodes": self.episodes,
            "fresh": self.fresh,
            "selected": self.selected,
            "gap": self.gap,
            "cautions": list(self.cautions),
        }


@dataclass(frozen=True, repr=False)
class CheckpointEvaluations(Result):
    """All evaluated checkpoints, and the mean gap between selection and confirmation.

    >>> len(fairtrial.evaluate(["demo/base.seed1072", "demo/new.seed1072"]).runs)
    2
    """

    runs: Sequence[CheckpointEvaluation]
    gap: Estimate | None
    damaged: Mapping[str, str] = field(default_factory=dict)
    """Run → why it could not be evaluated: its files do not match what was recorded."""

    def to_dict(self) -> dict[str, Any]:
        if len(self.runs) == 1 and not self.damaged:
            return self.runs[0].to_dict()
        gap = None if self.gap is None else self.gap.to_dict()
        return {"runs": [each.to_dict() for each in self.runs], "gap": gap, "damaged": dict(self.damaged)}


@recorded("evaluate")
def evaluate(
    references: Sequence[str],
    *,
    checkpoint: str = BEST,
    episodes: int | None = None,
    confirm: bool = False,
    level: float = 0.95,
    store: str | os.PathLike[str] | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> CheckpointEvaluations:
    """Re-evaluate checkpoints of runs and store each result with its run.

    With `confirm`, evaluate on held-out episodes or data, and compare with the value that selected the checkpoint.

    >>> fairtrial.evaluate(["demo/base.seed1072"]).runs[0].checkpoint
    'best'
    """
    if episodes is not None and episodes < 1:
        raise UserError(f"episodes must be at least 1, not {episodes}")
    if confirm and checkpoint != BEST:
        raise UserError("only the best checkpoint was selected by its value, so only that one can be confirmed")
    place = open_store(store)
    named = all_at_once(*(lambda each=each: require_all_existing(place, each) for each in references))
    checkpoint_evaluations = []
    damaged: dict[str, str] = {}
    chosen = list({run.path: run for runs in named for run in runs}.values())
    for run in chosen:
        try:
            not_damaged(run)
            tell(f"Evaluating {run.name} …")
            place.fetch(run.study, run.id)
            checkpoint_evaluations.append(
                _evaluate(run, checkpoint, episodes, fresh=confirm, alpha=round(1 - level, 12))
            )
            _write_down(checkpoint_evaluations[-1])
        except StoreError as error:
            if len(chosen) == 1:
                raise
            damaged[run.name] = error.message
            tell(f"{run.name} cannot be evaluated: {error.message}")
    if not checkpoint_evaluations:
        name, reason = next(iter(damaged.items()))
        raise StoreError(f"none of {len(chosen)} runs can be evaluated: {name}: {reason}", hint=HINT)
    gaps = np.array([each.gap for each in checkpoint_evaluations if each.gap is not None])
    return CheckpointEvaluations(
        checkpoint_evaluations, mean_of(gaps, round(1 - level, 12)) if confirm else None, damaged
    )


def _evaluate(run: Run, which: str, episodes: int | None, *, fresh: bool, alpha: float) -> CheckpointEvaluation:
    if run.status is Status.RUNNING:
        raise UserError(f"run {run.name} is still running", hint="Wait until it ends, then evaluate it.")
    recipe = load_checked_recipe(run.metadata.recipe_file or run.metadata.recipe)
    if recipe.execute is not None:
        raise UserError(
            f"run {run.name} was created by an external program; only that program can evaluate its checkpoints"
        )
    saved = _checkpoint(run, which)
    plan = plan_of_recorded(run)
    [job] = plan.jobs
    require_needs(plan, plan.jobs, Store.at(job.store))
    cautions: list[FilledCaution] = []
    if fresh:
        job, cautions = _with_fresh_data(job)
    trainable = rebuild(job)
    trainable.load_state(saved.state)
    metric = recipe.metric.on("eval") if recipe.metric else None
    count, metrics, intervals = _measure(trainable, run, metric, episodes, fresh=fresh, alpha=alpha)
    checkpoint_evaluation = CheckpointEvaluation(
        run, which, saved.step, metrics, intervals, count, fresh, cautions=() if count else cautions
    )
    checkpoint_evaluation = _normalized(checkpoint_evaluation, metric)
    return _against_selection(checkpoint_evaluation) if fresh else checkpoint_evaluation


def _measure(
    trainable: Any, run: Run, metric: str | None, episodes: int | None, *, fresh: bool, alpha: float
) -> tuple[int | None, dict[str, float], dict[str, Estimate]]:
    """Return the number of episodes (None without episodes), the metrics, and their intervals over episodes."""
    if not hasattr(trainable, "evaluate_episodes") or metric is None:
        if episodes is not None:
            raise UserError(f"recipe '{run.metadata.recipe}' has no episodes", hint="Omit --episodes.")
        return None, as_floats(trainable.evaluate("report"), "eval_"), {}
    count = episodes or int(run.metadata.options["report_episodes"])
    returns = trainable.evaluate_episodes("report", count, FRESH if fresh else 0)
    interval = mean_of(np.array(returns, dtype=float), alpha)
    return count, {metric: float(np.mean(returns))}, {metric: interval}


def _with_fresh_data(job: Job) -> tuple[Job, list[FilledCaution]]:
    """Return the job with fresh report data, or with a caution if its recipe has no more data."""
    spec = job.spec
    recipe = load_checked_recipe(spec.recipe_file or spec.recipe)
    options = parse_options(recipe.options, spec.options, where=spec.name)
    changes = recipe.fresh_report(options, spec.seed)
    if changes is None:
        return job, [REPORT_NOT_FRESH.fill(recipe=recipe.name)]
    other = parse_options(recipe.options, {**spec.options, **changes}, where=spec.name)
    changed = replace(spec, options=other.to_dict(), identity=result_options(recipe.options, other))
    return replace(job, spec=changed), []


def _checkpoint(run: Run, which: str) -> Checkpoint:
    """Read the checkpoint `best`, `last`, `step-N`, or `best-K` if several best ones were kept."""
    paths = run.paths
    if which == BEST:
        if run.metadata.best_checkpoint_step is None:
            raise UserError(f"run {run.name} has no best checkpoint", hint="Try --checkpoint last.")
        return read_checkpoint(paths.best, sha256=run.metadata.best_checkpoint_sha256)
    saved = saved_checkpoints(paths)
    if which == LAST and saved:
        return read_checkpoint(paths.step(max(saved)), sha256=saved[max(saved)])
    step = re.fullmatch(r"step-(\d+)", which)
    if step and int(step.group(1)) in saved:
        return read_checkpoint(paths.step(int(step.group(1))), sha256=saved[int(step.group(1))])
    top = list_top_checkpoints(paths, run.metadata.best_metric_mode or "max")
    rank = re.fullmatch(r"best-(\d+)", which)
    if rank and 1 <= int(rank.group(1)) <= len(top):
        chosen = top[int(rank.group(1)) - 1]
        return read_checkpoint(chosen.path, sha256=chosen.sha256)
    there = [BEST] * (run.metadata.best_checkpoint_step is not None) + [LAST] * bool(saved)
    there += [f"step-{each}" for each in sorted(saved)] + [f"best-{place + 1}" for place in range(len(top))]
    raise UserError(f"run {run.name} has no checkpoint '{which}'; it has: {', '.join(there) or 'none'}")


def _normalized(checkpoint_evaluation: CheckpointEvaluation, metric: str | None) -> CheckpointEvaluation:
    """Add the score normalized by the reference scores of the run, if it has them."""
    known = checkpoint_evaluation.run.metadata.lineage.references
    if known is None or metric is None or metric not in checkpoint_evaluation.metrics:
        return checkpoint_evaluation
    references = References(**known)
    name = f"eval_{NORMALIZED}"
    metrics = {**checkpoint_evaluation.metrics, name: references.normalized(checkpoint_evaluation.metrics[metric])}
    carried = (
        {name: references.carry_over(checkpoint_evaluation.intervals[metric])}
        if metric in checkpoint_evaluation.intervals
        else {}
    )
    return replace(checkpoint_evaluation, metrics=metrics, intervals={**checkpoint_evaluation.intervals, **carried})


def _against_selection(checkpoint_evaluation: CheckpointEvaluation) -> CheckpointEvaluation:
    """Add the gap between the value at selection and the fresh value: the winner's curse of this run."""
    metadata = checkpoint_evaluation.run.metadata
    selected = metadata.best_metric_value
    fresh = checkpoint_evaluation.metrics.get(metadata.best_metric_name or "")
    if selected is None or fresh is None:
        return replace(checkpoint_evaluation, selected=selected)
    gap = selected - fresh if metadata.best_metric_mode == "max" else fresh - selected
    return replace(checkpoint_evaluation, selected=selected, gap=gap)


def _write_down(checkpoint_evaluation: CheckpointEvaluation) -> None:
    document = {
        name: value for name, value in checkpoint_evaluation.to_dict().items() if name not in ("run", "cautions")
    }
    recorder = Recorder.attach(checkpoint_evaluation.run.paths)
    try:
        recorder.write_event(EVALUATION, **document)
    finally:
        recorder.release()
    Store.at(checkpoint_evaluation.run.path.parent.parent).push_events(
        checkpoint_evaluation.run.study, checkpoint_evaluation.run.id
    )
