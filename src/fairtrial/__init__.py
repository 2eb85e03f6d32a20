"""Fairtrial tells you whether a change to your training made it better: how surely, how fast, and at what cost.

Names are imported on first use, so that `import fairtrial` is fast.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

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

_HOMES = {
    "run": "fairtrial.api.running.script",
    "train": "fairtrial.api.running.train",
    "resume": "fairtrial.api.running.train",
    "Trained": "fairtrial.api.running.train",
    "launch": "fairtrial.api.running.launch",
    "ExecutionPolicy": "fairtrial.launch.policy",
    "Launched": "fairtrial.api.running.launch",
    "detach": "fairtrial.api.running.detach",
    "Detached": "fairtrial.api.running.detach",
    "evaluate": "fairtrial.api.running.evaluate",
    "CheckpointEvaluations": "fairtrial.api.running.evaluate",
    "list_runs": "fairtrial.api.running.runs",
    "show_run": "fairtrial.api.running.runs",
    "export_runs": "fairtrial.api.running.runs",
    "query": "fairtrial.api.running.runs",
    "watch_study": "fairtrial.api.running.watch",
    "StudyState": "fairtrial.api.running.watch",
    "analyze": "fairtrial.api.comparing.analyze",
    "analyze_by_plan": "fairtrial.api.evidence.preregistered_analysis",
    "preregister": "fairtrial.api.evidence.preregister",
    "Intent": "fairtrial.api.evidence.preregister",
    "Analysis": "fairtrial.api.comparing.analysis",
    "Question": "fairtrial.api.comparing.analysis",
    "sweep": "fairtrial.api.lab.sweep",
    "temperature": "fairtrial.api.lab.sweep",
    "temperature_sweep": "fairtrial.api.lab.sweep",
    "alpha": "fairtrial.api.lab.sweep",
    "alpha_sweep": "fairtrial.api.lab.sweep",
    "Sweep": "fairtrial.api.lab.sweep",
    "compare": "fairtrial.api.lab.compare",
    "compare_strategies": "fairtrial.api.lab.compare",
    "StrategyComparison": "fairtrial.api.lab.compare",
    "ablation": "fairtrial.api.lab.ablation",
    "Ablation": "fairtrial.api.lab.ablation",
    "LabConfig": "fairtrial.api.lab.arms",
    "variance": "fairtrial.api.comparing.variance",
    "variance_by_stream": "fairtrial.api.comparing.by_stream",
    "power": "fairtrial.api.comparing.power",
    "bench": "fairtrial.api.benchmarking.bench",
    "Bench": "fairtrial.api.benchmarking.bench",
    "BenchTerms": "fairtrial.api.benchmarking.bench_runs",
    "bench_variants": "fairtrial.api.benchmarking.bench_pairs",
    "bench_revisions": "fairtrial.api.benchmarking.bench_pairs",
    "profile": "fairtrial.api.benchmarking.profile",
    "Profile": "fairtrial.api.benchmarking.profile",
    "ProfileTerms": "fairtrial.api.benchmarking.profile",
    "load_profile": "fairtrial.api.benchmarking.profile_diff",
    "diff_profiles": "fairtrial.api.benchmarking.profile_diff",
    "check_profile": "fairtrial.api.benchmarking.profile_diff",
    "ProfileDiff": "fairtrial.api.benchmarking.profile_diff",
    "sync": "fairtrial.api.benchmarking.sync",
    "Sync": "fairtrial.api.benchmarking.sync",
    "cost_performance": "fairtrial.api.pricing.cost_performance",
    "CostPerformance": "fairtrial.api.pricing.cost_performance",
    "recommend": "fairtrial.api.pricing.recommend",
    "Advice": "fairtrial.api.pricing.recommend",
    "Source": "fairtrial.api.pricing.points",
    "CostModel": "fairtrial.costs.cost",
    "CostPerformanceAnalysis": "fairtrial.costs.analysis",
    "compute_pareto_frontier": "fairtrial.costs.analysis",
    "CostPoint": "fairtrial.costs.points",
    "Constraints": "fairtrial.costs.choice",
    "compare_samples": "fairtrial.stats.compare",
    "compare_to_target": "fairtrial.stats.target",
    "aggregate": "fairtrial.stats.aggregate",
    "SummaryRule": "fairtrial.stats.summaries",
    "Columns": "fairtrial.core.readers",
    "SummaryOptions": "fairtrial.core.printed",
    "Comparison": "fairtrial.core.findings",
    "Estimate": "fairtrial.core.findings",
    "Verdict": "fairtrial.core.findings",
    "Study": "fairtrial.plan.study",
    "read_study": "fairtrial.plan.study",
    "write_study": "fairtrial.api.running.init",
    "doctor": "fairtrial.api.benchmarking.doctor",
    "FairtrialError": "fairtrial.core.errors",
    "init_artifact": "fairtrial.api.evidence.artifact",
    "add_file": "fairtrial.api.evidence.artifact",
    "cite": "fairtrial.api.evidence.artifact",
    "bundle": "fairtrial.api.evidence.bundle",
    "Bundled": "fairtrial.api.evidence.bundle",
    "BundleTerms": "fairtrial.api.evidence.bundle",
    "verify_bundle": "fairtrial.api.evidence.verify_bundle",
    "CheckedBundle": "fairtrial.api.evidence.verify_bundle",
    "export": "fairtrial.api.evidence.export",
    "deposit": "fairtrial.api.evidence.deposit",
    "Deposit": "fairtrial.api.evidence.deposit",
}

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
