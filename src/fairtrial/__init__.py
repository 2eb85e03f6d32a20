"""Fairtrial tells you whether a change to your training made it better: how surely, how fast, and at what cost.

    >>> import fairtrial
    >>> print(fairtrial.compare([0.81, 0.80, 0.83, 0.79], [0.85, 0.83, 0.88, 0.84], paired=True))  # doctest: +ELLIPSIS
    candidate is better than control: +0.0425 [+0.0273, +0.0577], +5.3 % ...

Names are imported on first use, so that `import fairtrial` is fast. The public names:
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from fairtrial.public_names import PUBLIC_NAMES, overview
from fairtrial.version import __version__

if TYPE_CHECKING:
    from fairtrial.api.benchmarking.bench import Bench, bench
    from fairtrial.api.benchmarking.bench_pairs import bench_revisions, bench_variants
    from fairtrial.api.benchmarking.bench_runs import BenchTerms
    from fairtrial.api.benchmarking.doctor import doctor
    from fairtrial.api.benchmarking.profile import Profile, ProfileTerms, profile
    from fairtrial.api.benchmarking.profile_diff import ProfileDiff, check_profile, diff_profiles, load_profile
    from fairtrial.api.benchmarking.sync import Sync, sync
    from fairtrial.api.comparing.analysis import Analysis, Question
    from fairtrial.api.comparing.analyze import analyze
    from fairtrial.api.comparing.by_stream import variance_by_stream
    from fairtrial.api.comparing.power import power
    from fairtrial.api.comparing.variance import variance
    from fairtrial.api.evidence.artifact import add_file, cite, init_artifact
    from fairtrial.api.evidence.bundle import Bundled, BundleTerms, bundle
    from fairtrial.api.evidence.deposit import Deposit, deposit
    from fairtrial.api.evidence.export import export
    from fairtrial.api.evidence.preregister import Intent, preregister
    from fairtrial.api.evidence.preregistered_analysis import analyze_by_plan
    from fairtrial.api.evidence.verify_bundle import CheckedBundle, verify_bundle
    from fairtrial.api.lab.ablation import Ablation, ablation
    from fairtrial.api.lab.arms import LabConfig
    from fairtrial.api.lab.compare import StrategyComparison, compare, compare_strategies
    from fairtrial.api.lab.sweep import Sweep, alpha, alpha_sweep, sweep, temperature, temperature_sweep
    from fairtrial.api.pricing.cost_performance import CostPerformance, cost_performance
    from fairtrial.api.pricing.points import Source
    from fairtrial.api.pricing.recommend import Advice, recommend
    from fairtrial.api.running.detach import Detached, detach
    from fairtrial.api.running.evaluate import CheckpointEvaluations, evaluate
    from fairtrial.api.running.init import write_study
    from fairtrial.api.running.launch import Launched, launch
    from fairtrial.api.running.runs import export_runs, list_runs, query, show_run
    from fairtrial.api.running.script import run
    from fairtrial.api.running.train import Trained, resume, train
    from fairtrial.api.running.watch import StudyState, watch_study
    from fairtrial.core.errors import FairtrialError
    from fairtrial.core.findings import Comparison, Estimate, Verdict
    from fairtrial.core.printed import SummaryOptions
    from fairtrial.core.readers import Columns
    from fairtrial.costs.analysis import CostPerformanceAnalysis, compute_pareto_frontier
    from fairtrial.costs.choice import Constraints
    from fairtrial.costs.cost import CostModel
    from fairtrial.costs.points import CostPoint
    from fairtrial.launch.policy import ExecutionPolicy
    from fairtrial.plan.study import Study, read_study
    from fairtrial.stats.aggregate import aggregate
    from fairtrial.stats.compare import compare_samples
    from fairtrial.stats.summaries import SummaryRule
    from fairtrial.stats.target import compare_to_target

_HOMES = {name: known.module for group in PUBLIC_NAMES.values() for name, known in group.items()}

_RENAMED = {
    "Evaluated": "CheckpointEvaluations",
    "LabTerms": "LabConfig",
    "LaunchTerms": "ExecutionPolicy",
}
"""Old name → new name. The old names still work, with a deprecation warning."""

__all__ = [
    "Ablation",
    "Advice",
    "Analysis",
    "Bench",
    "BenchTerms",
    "BundleTerms",
    "Bundled",
    "CheckedBundle",
    "CheckpointEvaluations",
    "Columns",
    "Comparison",
    "Constraints",
    "CostModel",
    "CostPerformance",
    "CostPerformanceAnalysis",
    "CostPoint",
    "Deposit",
    "Detached",
    "Estimate",
    "ExecutionPolicy",
    "FairtrialError",
    "Intent",
    "LabConfig",
    "Launched",
    "Profile",
    "ProfileDiff",
    "ProfileTerms",
    "Question",
    "Source",
    "StrategyComparison",
    "Study",
    "StudyState",
    "SummaryOptions",
    "SummaryRule",
    "Sweep",
    "Sync",
    "Trained",
    "Verdict",
    "__version__",
    "ablation",
    "add_file",
    "aggregate",
    "alpha",
    "alpha_sweep",
    "analyze",
    "analyze_by_plan",
    "bench",
    "bench_revisions",
    "bench_variants",
    "bundle",
    "check_profile",
    "cite",
    "compare",
    "compare_samples",
    "compare_strategies",
    "compare_to_target",
    "compute_pareto_frontier",
    "cost_performance",
    "deposit",
    "detach",
    "diff_profiles",
    "doctor",
    "evaluate",
    "export",
    "export_runs",
    "init_artifact",
    "launch",
    "list_runs",
    "load_profile",
    "power",
    "preregister",
    "profile",
    "query",
    "read_study",
    "recommend",
    "resume",
    "run",
    "show_run",
    "sweep",
    "sync",
    "temperature",
    "temperature_sweep",
    "train",
    "variance",
    "variance_by_stream",
    "verify_bundle",
    "watch_study",
    "write_study",
]


__doc__ = f"{__doc__}\n{overview()}\n"


def __dir__() -> list[str]:
    return sorted({*__all__, "plugins", "testing"})


def __getattr__(name: str) -> Any:
    if name in _RENAMED:
        from fairtrial.core.deprecation import warn_renamed

        warn_renamed(f"fairtrial.{name}", f"fairtrial.{_RENAMED[name]}", stacklevel=2)
        name = _RENAMED[name]
    if name not in _HOMES:
        raise AttributeError(f"module 'fairtrial' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


class _Fairtrial(ModuleType):
    """The module type of `fairtrial`, which keeps `fairtrial.train` a function.

    Importing the subpackage `fairtrial.train` would otherwise replace the function of the same name.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Fairtrial
