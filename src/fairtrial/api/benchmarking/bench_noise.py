"""Measure the gradient noise scale of a run at its current weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from fairtrial.api.benchmarking.bench_runs import HiddenRuns
from fairtrial.core.cautions import WEIGHTS_OF_NOW
from fairtrial.core.errors import UserError
from fairtrial.core.findings import Estimate, FilledCaution
from fairtrial.jobs.run_session import SteppableRun
from fairtrial.probe.noise_scale import PIECES, squared_lengths
from fairtrial.stats.noise_scale import noise_scale


@dataclass(frozen=True)
class NoiseScale:
    """The batch size at which the noise and the signal of a gradient are equally large."""

    scale: Estimate
    batch: int
    pieces: int
    measurements: int
    step: int
    cautions: Sequence[FilledCaution] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "scale": self.scale.to_dict(),
            "batch_size": self.batch,
            "batches": self.pieces,
            "measurements": self.measurements,
            "after_steps": self.step,
        }


def require_gradients(runs: HiddenRuns, run: SteppableRun) -> None:
    if not hasattr(run.trainable, "batch_gradients"):
        raise UserError(
            f"recipe '{runs.recipe.name}' provides no gradients", hint="Add batch_gradients(draw) to its trainable."
        )


def measure_noise_scale(runs: HiddenRuns, run: SteppableRun) -> NoiseScale:
    """Measure on batches drawn with replacement, so that the pieces of a measurement are independent."""
    runs.terms.tell("Measuring the gradient noise scale …")
    draw, trainable = run.streams.numpy("eval", "noise scale"), cast(Any, run.trainable)
    small, large, batch = squared_lengths(trainable.batch_gradients, draw, should_stop=runs.terms.should_stop)
    runs.require(None)
    scale = noise_scale(np.array(small), np.array(large), batch, PIECES, runs.terms.alpha)
    return NoiseScale(scale, batch, PIECES, len(small), run.taken, [WEIGHTS_OF_NOW.fill(steps=run.taken)])
