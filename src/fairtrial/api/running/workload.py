"""Estimate the work of a launch before its first run: number of steps, size of a step, and approximate time.

The time estimate comes from measurements only: from finished runs with the same options on this machine, else from the
runs of this launch once they have completed some steps. Until then the time is reported as unknown.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fairtrial.core.canonical import canonical_json
from fairtrial.core.formatting import counted, shown_time
from fairtrial.core.options import parse_options
from fairtrial.core.registry import LoadedRecipe
from fairtrial.core.runs import Status
from fairtrial.core.specs import RunSpec
from fairtrial.core.training import StepSize
from fairtrial.jobs.run_session import revealed
from fairtrial.launch.policy import Watcher
from fairtrial.launch.schedule import RunState, ScheduledRun
from fairtrial.record.index import list_rows, pick
from fairtrial.record.series import last_row
from fairtrial.record.store import Store

MOST_ROWS = 2000
MOST_READ = 50
MOST_LIKE = 5
ENOUGH_S = 3.0
"""Seconds of training after which the pace of a run is reliable enough for an estimate."""
POLL_EVERY_S = 1.0
WORTH_SAYING_S = 10.0
"""Shorter remaining times, in seconds, are not announced."""


@dataclass(frozen=True)
class Workload:
    """The runs that are still to do, and the work of each of them."""

    runs: int
    steps: tuple[int, int] | None
    """Steps of the shortest and the longest run; None if a run has no steps, as with an external program."""
    step_sizes: tuple[StepSize, ...] = ()
    """What one step processes, for each kind of run; empty if the recipe does not define it."""
    units: int | None = None
    """Total number of these units over all runs."""
    seconds: float | None = None
    basis: str | None = None
    at_once: int | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "runs": self.runs,
            "steps": None if self.steps is None else {"min": self.steps[0], "max": self.steps[1]},
            "step": [{"count": each.count, "unit": each.unit, "made_of": each.made_of} for each in self.step_sizes],
            "total": None if self.units is None else {"count": self.units, "unit": self.step_sizes[0].unit},
            "at_once": self.at_once,
            "estimated_seconds": self.seconds,
            "estimate_basis": self.basis,
        }

    def lines(self) -> list[str]:
        if not self.runs:
            return []
        return [*self._amount(), self._time()]

    def _amount(self) -> list[str]:
        runs = counted(self.runs, "run")
        if self.steps is None:
            return [f"To do: {runs}."]
        low, high = self.steps
        steps = f"{high:,}" if low == high else f"{low:,} to {high:,}"
        if self.units is None:
            return [f"To do: {runs} of {steps} steps."]
        size = self.step_sizes[0]
        total = f"Total: {self.units:,} {size.unit}."
        if len(self.step_sizes) > 1:
            return [f"To do: {runs} of {steps} steps. {total}"]
        each = f"{high * size.count:,} {size.unit} {'each' if low == high else 'in the longest'}"
        made_of = f" ({size.made_of})" if size.made_of else ""
        return [f"To do: {runs} of {steps} steps: {each}.", f"A step is {size.count:,} {size.unit}{made_of}. {total}"]

    def _time(self) -> str:
        if self.seconds is None:
            when = "the first run has ended" if self.steps is None else "the first run has completed some steps"
            return f"Time: unknown until {when}.{self.shorter}"
        together = f", {self.at_once} at once" if self.at_once and self.at_once > 1 else ""
        return f"Time: about {shown_time(self.seconds)}{together}, based on {self.basis}.{self.shorter}"

    @property
    def shorter(self) -> str:
        return "" if self.steps is None else " Use --steps N to shorten it."


def workload_of(
    specs: Sequence[RunSpec], recipe: LoadedRecipe, store: Store, environment: Mapping[str, Any], *,
    at_once: int | None, measured_here: bool = True,
) -> Workload:  # fmt: skip
    """Estimate the work of these pending runs. `at_once` is how many run in parallel; None if it is unknown."""
    variants = {spec.variant: spec for spec in specs}
    counts = Counter(spec.variant for spec in specs)
    steps: dict[str, int] = {name: spec.options.get("steps") or 0 for name, spec in variants.items()}
    if not specs or not all(steps.values()):
        return Workload(len(specs), None, at_once=at_once)
    sizes = {name: _step_size(recipe, spec) for name, spec in variants.items()}
    units = None
    if all(sizes.values()) and len({size.unit for size in sizes.values() if size}) == 1:
        units = sum(size.count * steps[name] * counts[name] for name, size in sizes.items() if size)
    distinct = tuple(dict.fromkeys(size for size in sizes.values() if size)) if units is not None else ()
    seconds = basis = None
    if measured_here and at_once:
        seconds, basis = _from_history(variants, counts, store, environment, at_once)
    return Workload(len(specs), (min(steps.values()), max(steps.values())), distinct, units, seconds, basis, at_once)


def _step_size(recipe: LoadedRecipe, spec: RunSpec) -> StepSize | None:
    return recipe.step_size(parse_options(recipe.options, revealed(recipe, spec), where=spec.name))


def _from_history(
    variants: Mapping[str, RunSpec],
    counts: Mapping[str, int],
    store: Store,
    environment: Mapping[str, Any],
    at_once: int,
) -> tuple[float | None, str | None]:
    """Estimate the total time from finished runs that differ only in their seed and number of steps."""
    wanted = {_kind(spec.recipe, spec.identity): name for name, spec in variants.items()}
    rows: dict[bytes, list[Mapping[str, Any]]] = {}
    recipes = {spec.recipe for spec in variants.values()}
    candidates = [row for row in list_rows(store) if row["recipe"] in recipes and row["wall_s"]][:MOST_ROWS]
    kinds: dict[int, bytes] = {}  # cached by object id: index rows share equal identity objects
    for row in candidates:
        identity = row["identity"]
        kind = kinds.get(id(identity)) or kinds.setdefault(id(identity), _kind(row["recipe"], identity))
        like = rows.setdefault(kind, [])
        if (
            kind in wanted
            and len(like) < MOST_READ
            and row["status"] == Status.COMPLETED
            and row["options"].get("steps")
        ):
            like.append(pick(row, ("study", "run", "options")))
    paces = {kind: _seconds_per_step(store, like, environment) for kind, like in rows.items()}
    if not all(paces.get(kind) for kind in wanted):
        return None, None
    each = {name: variants[name].options["steps"] * statistics.median(paces[kind]) for kind, name in wanted.items()}
    total = sum(seconds * counts[name] for name, seconds in each.items())
    count = sum(len(paces[kind]) for kind in wanted)
    basis = f"{counted(count, 'finished run')} with these options on this machine"
    return max(total / at_once, *each.values()), basis


def _kind(recipe: str, identity: Mapping[str, Any]) -> bytes:
    return canonical_json([recipe, {name: value for name, value in identity.items() if name != "steps"}])


def _seconds_per_step(store: Store, like: Sequence[Mapping[str, Any]], environment: Mapping[str, Any]) -> list[float]:
    """Return the seconds per step, including set-up, of the newest finished runs on this machine."""
    seconds_per_step: list[float] = []
    for row in like:
        if len(seconds_per_step) == MOST_LIKE:
            break
        run = store.look_at(row["study"], row["run"])
        if run is None or run.status is not Status.COMPLETED:
            continue
        there, timings = run.metadata.environment, run.metadata.timings
        same_machine = (there.hostname, there.cpu) == (environment.get("hostname"), environment.get("cpu"))
        if same_machine and timings.wall_s and timings.stacked == 1:
            seconds_per_step.append((timings.wall_s + (timings.setup_s or 0.0)) / row["options"]["steps"])
    return seconds_per_step


@dataclass
class PaceWatcher:
    """Watches the runs of a launch and announces the remaining time once, as soon as their pace is known."""

    inner: Watcher
    tell: Callable[[str], None]
    store: Store
    shorter: str = ""
    clock: Callable[[], float] = time.monotonic
    seconds: float | None = None
    basis: str | None = None
    _started: float | None = None
    _estimated: float = field(default=0.0)

    def __call__(self, runs: Sequence[ScheduledRun]) -> None:
        self.inner(runs)
        now = self.clock()
        if self._started is None:
            self._started = self._estimated = now
        if self.seconds is not None or now - self._estimated < POLL_EVERY_S:
            return
        self._estimated = now
        self._estimate(runs, now - self._started)

    def _estimate(self, runs: Sequence[ScheduledRun], elapsed: float) -> None:
        ended = [t for t in runs if t.outcome and t.outcome.status is Status.COMPLETED and not t.outcome.already_done]
        running = [t for t in runs if t.state is RunState.RUNNING]
        if ended and elapsed > ENOUGH_S:
            each = statistics.median([(t.ended or 0) - (t.started or 0) for t in ended])
            basis = "the first run" if len(ended) == 1 else f"the first {len(ended)} runs"
            done = {t.key: min(0.9, (self.clock() - (t.started or 0)) / each) if each else 0.0 for t in running}
        else:
            paces = {t.key: pace for t in running if (pace := self._pace(t))}
            if not paces:
                return
            each = statistics.median([full for full, _ in paces.values()])
            basis = "the first steps"
            done = {key: share for key, (_, share) in paces.items()}
        left = sum(1 - done.get(t.key, 0.0) for t in runs if t.state is not RunState.ENDED)
        self.seconds, self.basis = left * each / max(1, len(running)), basis
        if self.seconds > WORTH_SAYING_S:
            self.tell(f"Time: about {shown_time(self.seconds)} to go, based on {basis}.{self.shorter}")

    def _pace(self, run: ScheduledRun) -> tuple[float, float] | None:
        """Return the estimated duration of the whole run at its current pace, and the completed fraction."""
        spec = run.job.spec
        steps, row = spec.options.get("steps"), last_row(self.store.paths.run(spec.study, spec.run_id).metrics)
        trained, step = (row or {}).get("_time"), (row or {}).get("step")
        if not steps or not trained or not step or trained < ENOUGH_S:
            return None
        return trained / step * steps, step / steps
