"""The figures of a profile: phases by lane, three token rates, lag, buffer, caches, and answers by kind of decision.

The three token rates are kept separate: `generated` counts tokens that were written, `trained` those that had an
alternative and were learned from, `forwarded` those that the trainer read, including prompts and padding. Each is given
per second of wall-clock time, and per second in which its lane was busy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fairtrial.core.schema import PROFILE_SCHEMA
from fairtrial.probe.gpu import Gpus
from fairtrial.probe.phases import RESIDUAL, StepTimes
from fairtrial.probe.resources import peak_process_bytes
from fairtrial.probe.timeline import Interval, Track, merged, not_negative, overlap_s, total, within
from fairtrial.record.environment import git_state, machine
from fairtrial.stats.timing import Times

if TYPE_CHECKING:
    from fairtrial.recipes.grpo import PlayOptions
    from fairtrial.recipes.lm.learner import LearningCounters
    from fairtrial.recipes.lm.rollouts import JudgedPosition
    from fairtrial.recipes.lm.types import OrderDecision, Rollout

TRAINER = ("loss_forward", "backward", "optimizer")
ADDED = "_ms"
"""Suffix of the trainer's phases and of the residual in documents: their unit."""
BUSY = ("generation", "training")
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
LEAST_FOR_QUANTILES = 20
NOTICEABLE_WAIT = 0.01
"""If training waits for a larger share of the time than this, rollouts are the bottleneck."""
CACHES = (
    "adapter_hits", "adapter_misses", "prefix_hits", "prefix_misses", "shared_prefills", "state_hits", "state_misses",
    "state_expired",
)  # fmt: skip


@dataclass(frozen=True)
class Played:
    """One step: its rollout, the policy lag in versions (None: nothing is learned), and the time waited for it."""

    step: int
    rollout: Rollout
    lag: int | None = None
    waited_s: float = 0.0
    ready: int = 0


@dataclass(frozen=True)
class ProfileMeasures:
    """Everything that was recorded in the measured steps."""

    mode: str
    played: Sequence[Played]
    notes: Sequence[Any]
    steps: Sequence[StepTimes]
    before: LearningCounters
    after: LearningCounters
    depth_seconds: Mapping[int, float] | None = None
    judged: Sequence[JudgedPosition] | None = None

    @property
    def decisions(self) -> list[OrderDecision]:
        return [decision for each in self.played for decision in each.rollout.decisions]

    @property
    def windows(self) -> list[Interval]:
        """Timed intervals. Time between steps, such as playing in trainer mode, is not included."""
        return merged((step.begun, step.ended) for step in self.steps)

    @property
    def plays(self) -> bool:
        """Whether playing is part of the measurement."""
        return self.mode != "trainer"


def document_of(
    measured: ProfileMeasures,
    tracks: Sequence[Track],
    options: PlayOptions,
    facts: Mapping[str, Any],
    cautions: Sequence[Mapping[str, str]],
) -> dict[str, Any]:
    return {
        "schema": PROFILE_SCHEMA,
        "kind": "profile",
        **facts,
        "configuration": options.to_dict(),
        "hardware": _hardware(),
        "code": git_state(Path.cwd()),
        "steps": len(measured.steps),
        "step_ms": _step_times(measured),
        "phases_ms": _phases(measured, tracks),
        "lanes": {track.name: _track(track, measured) for track in tracks},
        "bubbles": _bubbles(tracks, measured),
        "tokens": _tokens(measured),
        "tokens_per_second": _rates(measured, dict.fromkeys(BUSY, total(measured.windows))),
        "tokens_per_busy_second": _rates(measured, {track: total(each) for track, each in _busy(tracks).items()}),
        "inference": _inference(measured.decisions) if measured.plays else None,
        "policy_lag_steps": _lags(measured),
        "max_policy_lag_steps": options.policy_lag,
        "buffer_depth": _buffer(measured, options),
        "buffer_limit": buffer_limit(measured, options),
        "quality": _quality(measured.judged, options),
        "cache": _caches(measured) if measured.plays else None,
        "memory": {"peak_process_bytes": peak_process_bytes(), "peak_player_bytes": _players_peak(measured)},
        "work": _work(measured),
        "cautions": list(cautions),
    }


def _hardware() -> dict[str, Any]:
    gpus = Gpus()
    cards = {"unavailable": gpus.unavailable} if gpus.unavailable else [asdict(each) for each in gpus.read()]
    return {**machine(), "gpu": cards}


def _step_times(measured: ProfileMeasures) -> dict[str, Any]:
    """Return the mean with its interval, and quantiles; null if there are too few steps."""
    seconds = [step.seconds for step in measured.steps]
    times = Times.of(seconds)
    mean = times.mean()
    enough = len(seconds) >= LEAST_FOR_QUANTILES
    quantiles = {name: _ms(times.quantile(share).value) if enough else None for name, share in QUANTILES.items()}
    return {"mean": _ms(mean.value), "low": _ms(mean.low), "high": _ms(mean.high), **quantiles, "each": _each(seconds)}


def _each(seconds: Iterable[float]) -> list[float]:
    return [1000 * each for each in seconds]


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds


def _phases(measured: ProfileMeasures, tracks: Sequence[Track]) -> dict[str, float]:
    """Return the milliseconds per step of each phase, over all lanes."""
    by_phase: dict[str, float] = {}
    for track in tracks:
        for span in track.spans:
            by_phase[span.phase] = by_phase.get(span.phase, 0.0) + 1000 * span.seconds / len(measured.steps)
    residual = by_phase.pop(RESIDUAL, 0.0)
    return {**{_spelled(name): value for name, value in by_phase.items()}, _spelled(RESIDUAL): residual}


def _spelled(phase: str) -> str:
    return phase + ADDED if phase in (*TRAINER, RESIDUAL) else phase


def _track(track: Track, measured: ProfileMeasures) -> dict[str, Any]:
    """Return the times of a lane: phases, residual and idle time add up to the window."""
    phases = track.phases(measured.windows)
    shown = {_spelled(name): 1000 * seconds for name, seconds in phases.items() if name != "idle"}
    return {
        "window_ms": 1000 * total(measured.windows),
        "busy_ms": 1000 * total(within(track.busy, measured.windows)),
        "phases_ms": shown,
        "idle_ms": 1000 * phases["idle"],
    }


def _busy(tracks: Sequence[Track]) -> dict[str, list[Interval]]:
    """Return when any worker played, and when the trainer was busy."""
    return {
        "generation": merged(each for track in tracks if track.name.startswith("generation") for each in track.busy),
        "training": merged(each for track in tracks if track.name == "training" for each in track.busy),
    }


def _bubbles(tracks: Sequence[Track], measured: ProfileMeasures) -> dict[str, Any]:
    """Return how long only one side was busy, both were or neither was, and how long training waited."""
    playing, learning = (within(each, measured.windows) for each in _busy(tracks).values())
    window, both = total(measured.windows), overlap_s(playing, learning)
    neither = window - total(playing) - total(learning) + both
    return {
        "window_ms": 1000 * window,
        "overlap_ms": 1000 * both,
        "only_generation_ms": 1000 * (total(playing) - both),
        "only_training_ms": 1000 * (total(learning) - both),
        "neither_ms": 1000 * not_negative(neither),
        "training_waited_ms": 1000 * sum(each.waited_s for each in measured.played),
    }


def _tokens(measured: ProfileMeasures) -> dict[str, int]:
    before, after = measured.before, measured.after
    learns = measured.mode != "rollout"
    return {
        "generated": sum(each.rollout.generated_tokens for each in measured.played),
        "trained": after.trained_tokens - before.trained_tokens if learns else 0,
        "forwarded": after.forwarded_tokens - before.forwarded_tokens if learns else 0,
        "prompt": sum(each.rollout.prompt_tokens for each in measured.played),
    }


def _rates(measured: ProfileMeasures, seconds: Mapping[str, float]) -> dict[str, float | None]:
    """Return tokens per second of the lane that handles them; null for tokens that the mode does not handle."""
    counted = _tokens(measured)
    tracks = {"generated": "generation", "trained": "training", "forwarded": "training"}
    done = {"rollout": {"generated"}, "trainer": {"trained", "forwarded"}}.get(measured.mode, set(tracks))
    return {
        name: counted[name] / seconds[track] if name in done and seconds[track] else None
        for name, track in tracks.items()
    }


def _inference(decisions: Sequence[OrderDecision]) -> dict[str, Any]:
    """Return the figures of the answers by kind of decision, and of all answers."""
    kinds = sorted({each.phase for each in decisions})
    return {kind: _answers([each for each in decisions if each.phase == kind]) for kind in kinds} | {
        "all": _answers(decisions)
    }


def _answers(decisions: Sequence[OrderDecision]) -> dict[str, Any]:
    timings = [each.completion.timing for each in decisions]
    latency = np.array([each.queue_s + each.prefill_s + each.decode_s for each in timings])
    enough = len(latency) >= LEAST_FOR_QUANTILES
    return {
        "requests": len(decisions),
        "prompt_tokens": sum(len(each.prompt) for each in decisions),
        "completion_tokens": sum(len(each.completion.tokens) for each in decisions),
        "queue_ms": 1000 * float(np.mean([each.queue_s for each in timings])),
        "prefill_ms": 1000 * float(np.mean([each.prefill_s for each in timings])),
        "decode_ms": 1000 * float(np.mean([each.decode_s for each in timings])),
        "latency_ms": {
            name: 1000 * float(np.quantile(latency, share)) if enough else None for name, share in QUANTILES.items()
        },
    }


def _lags(measured: ProfileMeasures) -> dict[str, float | None]:
    lags = [each.lag for each in measured.played if each.lag is not None]
    return {"max": max(lags), "mean": sum(lags) / len(lags)} if lags else {"max": None, "mean": None}


def _buffer(measured: ProfileMeasures, options: PlayOptions) -> dict[str, float | None]:
    """Return how many finished rollouts waited beyond the trainer's current step: weighted by time, not per step.

    Right after a version is published, the next rollout has only been requested. A full buffer therefore alternates
    between the depth that the lag allows and one less.
    """
    limits: dict[str, float | None] = {"configured": options.buffer_depth, "allowed": _allowed(options)}
    if measured.mode != "e2e":
        return {**limits, "mean": None, "min": None, "max": None}
    seconds = {depth: spent for depth, spent in (measured.depth_seconds or {0: 1.0}).items() if spent > 0}
    mean = sum(depth * spent for depth, spent in seconds.items()) / sum(seconds.values())
    return {**limits, "mean": mean, "min": min(seconds), "max": max(seconds)}


def _allowed(options: PlayOptions) -> int:
    return min(options.buffer_depth, options.policy_lag)


def buffer_limit(measured: ProfileMeasures, options: PlayOptions) -> dict[str, str] | None:
    """Return why the buffer does not hold more rollouts: a code and a reason."""
    if measured.mode != "e2e":
        return None
    allowed, deepest = _allowed(options), max((measured.depth_seconds or {0: 1.0}).keys())
    waited = sum(each.waited_s for each in measured.played) / total(measured.windows)
    if options.buffer_depth == 0:
        by, why = "no_buffer", "there is no buffer: playing and learning alternate"
    elif allowed and waited > NOTICEABLE_WAIT:
        rollout = 1000 * float(np.mean([each.rollout.seconds for each in measured.played]))
        by = "rollouts"
        why = (
            f"rollouts are slower than training: one takes {rollout:,.0f} ms, and training waited {100 * waited:.1f} % "
            f"of the time; to fill the buffer, use more --workers or smaller rollouts"
        )
    elif deepest < allowed:
        by, why = "short_run", "the profile ended before the buffer was full; take more --steps"
    elif options.policy_lag < options.buffer_depth:
        by = "policy_lag"
        why = f"--policy-lag {options.policy_lag} is the limit: a rollout that waits longer would be too old"
    else:
        by, why = "buffer_depth", f"--buffer-depth {options.buffer_depth} is the limit"
    return {"by": by, "reason": why}


def _quality(judged: Sequence[JudgedPosition] | None, options: PlayOptions) -> dict[str, Any] | None:
    """Return how well the model plays, on positions that two profiles with the same seed share for all prompts."""
    if judged is None:
        return None
    positions = hashlib.sha256("\n".join(each.position for each in judged).encode()).hexdigest()[:16]
    legal, reward = [int(each.legal) for each in judged], [each.reward for each in judged]
    return {
        "positions": positions,
        "decisions": options.horizon,
        "legal": legal,
        "legal_share": sum(legal) / len(legal),
        "reward": reward,
        "reward_mean": sum(reward) / len(reward),
    }


def _caches(measured: ProfileMeasures) -> dict[str, int]:
    parts = [part for each in measured.played for part in each.rollout.parts]
    return {name: int(sum(part.counters[name] for part in parts)) for name in CACHES}


def _players_peak(measured: ProfileMeasures) -> int | None:
    """Return the peak memory of the largest worker process; null if only this process played."""
    peaks = [part.peak_bytes for each in measured.played for part in each.rollout.parts if part.peak_bytes]
    return max(peaks, default=None)


def _work(measured: ProfileMeasures) -> list[dict[str, Any]]:
    """Return the work of each step, so that two profiles can be compared step by step."""
    return [
        {
            "step": each.step,
            "ms": 1000 * times.seconds,
            "decisions": len(each.rollout.decisions),
            "positions": each.rollout.positions_hash,
            "prompt_tokens": each.rollout.prompt_tokens,
            "completion_tokens": each.rollout.generated_tokens,
        }
        for each, times in zip(measured.played, measured.steps, strict=True)
    ]
