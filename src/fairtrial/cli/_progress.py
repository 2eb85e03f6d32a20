"""Progress bars: one per run, and one for the whole study."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from fairtrial.cli._output import Output
from fairtrial.core.formatting import counted
from fairtrial.core.runs import STOPPED, Outcome, Status
from fairtrial.core.specs import RunSpec
from fairtrial.core.training import Observer
from fairtrial.launch.job_plan import JobPlan
from fairtrial.launch.schedule import RunState, ScheduledRun
from fairtrial.record.series import last_step
from fairtrial.record.store import Store

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

REFRESH_S = 0.1
MOST_BARS = 6
MANY_REFRESH_S = 1.0


@contextlib.contextmanager
def make_progress(out: Output) -> Iterator[Progress]:
    """Show progress bars, which disappear at the end. Lines that are printed meanwhile appear above them."""
    from fairtrial.cli._bars import progress_bars

    with progress_bars(out.console(err=True)) as progress:
        out.screen.bars = progress.console
        try:
            yield progress
        finally:
            out.screen.bars = None


@contextlib.contextmanager
def showing_progress(out: Output, what: str) -> Iterator[Callable[[str, int, int], None]]:
    """Show a progress bar for a measurement; yield a function that updates it and its label."""
    if not out.live:
        yield lambda *_: None
        return
    with make_progress(out) as progress:
        bar = progress.add_task(what, total=None, unit="")
        yield lambda what, done, total: progress.update(bar, description=what, completed=done, total=total)


class TrainProgress(Observer):
    """A progress bar for one run in this process. It reads only step numbers and times, never the model."""

    def __init__(self, progress: Progress, spec: RunSpec) -> None:
        self._progress = progress
        self._spec = spec
        self._task: TaskID | None = None
        self._shown = 0.0

    def training_started(self, first_step: int, steps: int, now: float) -> None:
        self._task = self._progress.add_task(self._spec.run_id, total=steps, completed=first_step - 1, unit="steps")
        self._shown = now

    def step_ended(self, step: int, now: float) -> None:
        if now - self._shown > REFRESH_S and self._task is not None:
            self._progress.update(self._task, completed=step)
            self._shown = now

    def training_ended(self, now: float) -> None:  # noqa: ARG002
        if self._task is not None:
            self._progress.remove_task(self._task)


class LaunchProgress:
    """Progress of a launch: bars for the active runs, a line for each ended run, and a total at the bottom."""

    def __init__(self, out: Output, progress: Progress | None, *, retry_failed: bool, each: bool = True) -> None:
        self._out = out
        self._each = each
        self._retry_failed = retry_failed
        self._progress = progress
        self._bars: dict[str, TaskID] = {}
        self._reported: set[str] = set()
        self._reasons: set[str | None] = set()
        self._total: TaskID | None = None
        self._batch: Sequence[ScheduledRun] | None = None
        self._read = 0.0

    def ready(self, plan: JobPlan) -> None:
        jobs = plan.jobs
        done = len(jobs) - len(plan.missing(retry_failed=self._retry_failed))
        begun = sum(job.spec.name in plan.existing for job in jobs) - done
        kept = f"; {done:,} already recorded" if done else ""
        goes_on = f"; {begun:,} to resume" if begun else ""
        self._out.say(f"Study: {jobs[0].spec.study}, {counted(len(jobs), 'run')}{kept}{goes_on}")

    def __call__(self, runs: Sequence[ScheduledRun]) -> None:
        for run in runs:
            if run.state is RunState.ENDED and run.key not in self._reported:
                self._report_end(run)
        if self._progress is not None:
            self._draw(self._progress, runs)

    def _report_end(self, run: ScheduledRun) -> None:
        self._reported.add(run.key)
        outcome = run.outcome
        if outcome is None or (outcome.status is Status.COMPLETED and not self._each):
            return
        if outcome.status is Status.INTERRUPTED and outcome.reason == STOPPED:
            return  # the user asked for it, and the last line says what is kept
        if self._progress is not None and outcome.status is not Status.COMPLETED and outcome.reason in self._reasons:
            return  # the bars count it, and the result names it
        took = (run.ended or 0) - (run.started or 0)
        mark = "✓" if outcome.status is Status.COMPLETED else "✗"
        self._out.say(f"  {mark} {run.key}  {outcome.status}{self._reason(outcome)}  {took:.1f} s")

    def _reason(self, outcome: Outcome) -> str:
        """Return why a run ended badly, in full only the first time."""
        if outcome.status is Status.COMPLETED:
            return ""
        known = outcome.reason in self._reasons
        self._reasons.add(outcome.reason)
        return ": for the same reason" if known else f": {outcome.reason}"

    def _draw(self, progress: Progress, runs: Sequence[ScheduledRun]) -> None:
        if self._batch is not runs:
            self._batch = runs
            self._start_total(progress, runs)
        many = sum(run.state is RunState.RUNNING for run in runs) > MOST_BARS
        if time.monotonic() - self._read < (MANY_REFRESH_S if many else REFRESH_S):
            return
        self._read = time.monotonic()
        running = {run.job.spec.run_id: _steps(run) for run in runs if run.state is RunState.RUNNING}
        ended = sum(run.state is RunState.ENDED for run in runs)
        assert self._total is not None
        done = ended + sum(done / steps for done, steps in running.values() if steps)
        progress.update(self._total, completed=done, description=_counts(runs))
        self._draw_bars(progress, running if len(running) <= MOST_BARS else _as_one(running))

    def _start_total(self, progress: Progress, runs: Sequence[ScheduledRun]) -> None:
        for bar in (*self._bars.values(), *([] if self._total is None else [self._total])):
            progress.remove_task(bar)
        self._bars.clear()
        self._total = progress.add_task("all runs", total=len(runs), unit="runs")

    def _draw_bars(self, progress: Progress, running: Mapping[str, tuple[int, int | None]]) -> None:
        for name in [name for name in self._bars if name not in running]:
            progress.remove_task(self._bars.pop(name))
        for name, (done, steps) in running.items():
            if name not in self._bars:
                self._bars[name] = progress.add_task(name, total=steps, unit="steps" if steps else "")
            progress.update(self._bars[name], completed=done)


def _counts(runs: Sequence[ScheduledRun]) -> str:
    """Return the counts by state: `3 queued, 2 running, 4 done, 1 failed`."""
    places = [run.state for run in runs]
    ends = [run.outcome.status if run.outcome else None for run in runs if run.state is RunState.ENDED]
    counts = {
        "queued": places.count(RunState.QUEUED),
        "running": places.count(RunState.RUNNING),
        "elsewhere": places.count(RunState.ELSEWHERE),
        "done": ends.count(Status.COMPLETED),
        "failed": sum(end not in (None, Status.COMPLETED, Status.INTERRUPTED) for end in ends),
        "interrupted": ends.count(Status.INTERRUPTED),
        "not started": ends.count(None),
    }
    return ", ".join(f"{count} {place}" for place, count in counts.items() if count)


def _steps(run: ScheduledRun) -> tuple[int, int | None]:
    """Return the last step in the run's own log, and the total number of steps if known."""
    spec = run.job.spec
    metrics = Store.at(run.job.store).paths.run(spec.study, spec.run_id).metrics
    return last_step(metrics) or 0, spec.options.get("steps")


def _as_one(running: Mapping[str, tuple[int, int | None]]) -> dict[str, tuple[int, int | None]]:
    """Merge runs that are trained together into one bar."""
    done, steps = [d for d, _ in running.values()], [s for _, s in running.values() if s]
    return {f"{len(running)} runs together": (sum(done) // len(done), max(steps, default=None))}


def observe_with(progress: Progress | None) -> Callable[[RunSpec], Sequence[Observer]]:
    return lambda spec: [] if progress is None else [TrainProgress(progress, spec)]
