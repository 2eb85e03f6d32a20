"""The benchmarks by name, in the order in which they are run."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import (
    accuracies,
    bundling,
    calibration,
    caution_rates,
    certificate_scan,
    choices,
    cluster_ray,
    cluster_skypilot,
    cluster_slurm,
    comparing,
    damaged_runs,
    defects,
    documented_lines,
    family_rule,
    fuzzing,
    kill_lines,
    lab,
    language,
    launching,
    listing,
    logging_calls,
    long_run,
    memory,
    mutations,
    planned_power,
    playing,
    power_loss,
    reading,
    reinforcement,
    reliability,
    resampling,
    shared_store,
    startup,
    step_costs,
    suites,
    sweeping,
    target_and_covariate,
    task_inference,
    uneven_logging,
    wheel,
)
from benchmarks.figures import Figure


@dataclass(frozen=True)
class Benchmark:
    """A measurement, given an empty folder to work in. `step`: the file of evidence that it belongs to."""

    title: str
    measure: Callable[[Path], list[Figure]]
    step: int
    slow: bool = False

    def run(self) -> list[Figure]:
        with tempfile.TemporaryDirectory(prefix="fairtrial-benchmark-") as folder:
            return self.measure(Path(folder))


BENCHMARKS = {
    "logging_calls": Benchmark(logging_calls.TITLE, logging_calls.measure, step=1),
    "kill_lines": Benchmark(kill_lines.TITLE, kill_lines.measure, step=1),
    "startup": Benchmark(startup.TITLE, startup.measure, step=1),
    "launching": Benchmark(launching.TITLE, launching.measure, step=1),
    "listing": Benchmark(listing.TITLE, listing.measure, step=1),
    "accuracies": Benchmark(accuracies.TITLE, accuracies.measure, step=1, slow=True),
    "calibration": Benchmark(calibration.TITLE, calibration.measure, step=2),
    "resampling": Benchmark(resampling.TITLE, resampling.measure, step=2, slow=True),
    "comparing": Benchmark(comparing.TITLE, comparing.measure, step=2, slow=True),
    "sweeping": Benchmark(sweeping.TITLE, sweeping.measure, step=3, slow=True),
    "lab": Benchmark(lab.TITLE, lab.measure, step=3, slow=True),
    "choices": Benchmark(choices.TITLE, choices.measure, step=4, slow=True),
    "step_costs": Benchmark(step_costs.TITLE, step_costs.measure, step=5, slow=True),
    "reinforcement": Benchmark(reinforcement.TITLE, reinforcement.measure, step=6, slow=True),
    "memory": Benchmark(memory.TITLE, memory.measure, step=6, slow=True),
    "playing": Benchmark(playing.TITLE, playing.measure, step=7, slow=True),
    "language": Benchmark(language.TITLE, language.measure, step=7, slow=True),
    "cluster_ray": Benchmark(cluster_ray.TITLE, cluster_ray.measure, step=8, slow=True),
    "cluster_skypilot": Benchmark(cluster_skypilot.TITLE, cluster_skypilot.measure, step=8, slow=True),
    "cluster_slurm": Benchmark(cluster_slurm.TITLE, cluster_slurm.measure, step=8, slow=True),
    "shared_store": Benchmark(shared_store.TITLE, shared_store.measure, step=8, slow=True),
    "bundling": Benchmark(bundling.TITLE, bundling.measure, step=9, slow=True),
    "fuzzing": Benchmark(fuzzing.TITLE, fuzzing.measure, step=10, slow=True),
    "long_run": Benchmark(long_run.TITLE, long_run.measure, step=10, slow=True),
    "power_loss": Benchmark(power_loss.TITLE, power_loss.measure, step=10, slow=True),
    "damaged_runs": Benchmark(damaged_runs.TITLE, damaged_runs.measure, step=10),
    "defects": Benchmark(defects.TITLE_10, defects.measure_10, step=10, slow=True),
    "mutations": Benchmark(mutations.TITLE, mutations.measure, step=10, slow=True),
    "audit_cases": Benchmark(defects.TITLE_11, defects.measure_11, step=11, slow=True),
    "reliability": Benchmark(reliability.TITLE, reliability.measure, step=11),
    "certificate_scan": Benchmark(certificate_scan.TITLE, certificate_scan.measure, step=11),
    "uneven_logging": Benchmark(uneven_logging.TITLE, uneven_logging.measure, step=11),
    "caution_rates": Benchmark(caution_rates.TITLE, caution_rates.measure, step=11),
    "target_and_covariate": Benchmark(target_and_covariate.TITLE, target_and_covariate.measure, step=11),
    "planned_power": Benchmark(planned_power.TITLE, planned_power.measure, step=11),
    "task_inference": Benchmark(task_inference.TITLE, task_inference.measure, step=11),
    "family_rule": Benchmark(family_rule.TITLE, family_rule.measure, step=11),
    "documented_lines": Benchmark(documented_lines.TITLE, documented_lines.measure, step=12, slow=True),
    "suites": Benchmark(suites.TITLE, suites.measure, step=14, slow=True),
    "wheel": Benchmark(wheel.TITLE, wheel.measure, step=15, slow=True),
    "reading": Benchmark(reading.TITLE, reading.measure, step=16),
}
