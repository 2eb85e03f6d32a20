"""Fairtrial: did your change to training really make it better? How sure, how fast, and at what price.

Names are imported when they are first used, so that `import fairtrial` costs nothing.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from fairtrial.version import __version__

if TYPE_CHECKING:
    from fairtrial.analyse.aggregate import aggregate
    from fairtrial.analyse.compare import compare_samples
    from fairtrial.analyse.summaries import SummaryRule
    from fairtrial.analyse.target import compare_to_target
    from fairtrial.api.ablation import Ablation, ablation
    from fairtrial.api.analysis import Analysis, Question
    from fairtrial.api.analyze import analyze
    from fairtrial.api.arms import LabTerms
    from fairtrial.api.artifact import add_file, cite, init_artifact
    from fairtrial.api.bench import Bench, bench
    from fairtrial.api.bench_pairs import bench_revisions, bench_variants
    from fairtrial.api.bench_runs import BenchTerms
    from fairtrial.api.bundle import Bundled, BundleTerms, bundle
    from fairtrial.api.by_plan import analyze_by_plan
    from fairtrial.api.by_stream import variance_by_stream
    from fairtrial.api.compare import StrategyComparison, compare, compare_strategies
    from fairtrial.api.cost_performance import CostPerformance, cost_performance
    from fairtrial.api.deposit import Deposit, deposit
    from fairtrial.api.detach import Detached, detach
    from fairtrial.api.doctor import doctor
    from fairtrial.api.evaluate import Evaluated, evaluate
    from fairtrial.api.export import export
    from fairtrial.api.init import write_study
    from fairtrial.api.launch import Launched, LaunchTerms, launch
    from fairtrial.api.points import Source
    from fairtrial.api.power import power
    from fairtrial.api.preregister import Intent, preregister
    from fairtrial.api.profile import Profile, ProfileTerms, profile
    from fairtrial.api.profile_diff import ProfileDiff, check_profile, diff_profiles, load_profile
    from fairtrial.api.recommend import Advice, recommend
    from fairtrial.api.runs import export_runs, list_runs, query, show_run
    from fairtrial.api.script import run
    from fairtrial.api.sweep import Sweep, alpha, alpha_sweep, sweep, temperature, temperature_sweep
    from fairtrial.api.sync import Sync, sync
    from fairtrial.api.train import Trained, resume, train
    from fairtrial.api.variance import variance
    from fairtrial.api.verify_bundle import CheckedBundle, verify_bundle
    from fairtrial.api.watch import StudyState, watch_study
    from fairtrial.core.errors import FairtrialError
    from fairtrial.core.findings import Comparison, Estimate, Verdict
    from fairtrial.core.printed import SummaryOptions
    from fairtrial.decide.analysis import CostPerformanceAnalysis, compute_pareto_frontier
    from fairtrial.decide.choice import Constraints
    from fairtrial.decide.cost import CostModel
    from fairtrial.decide.points import CostPoint
    from fairtrial.plan.study import Study, read_study
    from fairtrial.record.tables import Columns

_HOMES = {
    "run": "fairtrial.api.script",
    "train": "fairtrial.api.train",
    "resume": "fairtrial.api.train",
    "Trained": "fairtrial.api.train",
    "launch": "fairtrial.api.launch",
    "LaunchTerms": "fairtrial.api.launch",
    "Launched": "fairtrial.api.launch",
    "detach": "fairtrial.api.detach",
    "Detached": "fairtrial.api.detach",
    "evaluate": "fairtrial.api.evaluate",
    "Evaluated": "fairtrial.api.evaluate",
    "list_runs": "fairtrial.api.runs",
    "show_run": "fairtrial.api.runs",
    "export_runs": "fairtrial.api.runs",
    "query": "fairtrial.api.runs",
    "watch_study": "fairtrial.api.watch",
    "StudyState": "fairtrial.api.watch",
    "analyze": "fairtrial.api.analyze",
    "analyze_by_plan": "fairtrial.api.by_plan",
    "preregister": "fairtrial.api.preregister",
    "Intent": "fairtrial.api.preregister",
    "Analysis": "fairtrial.api.analysis",
    "Question": "fairtrial.api.analysis",
    "sweep": "fairtrial.api.sweep",
    "temperature": "fairtrial.api.sweep",
    "temperature_sweep": "fairtrial.api.sweep",
    "alpha": "fairtrial.api.sweep",
    "alpha_sweep": "fairtrial.api.sweep",
    "Sweep": "fairtrial.api.sweep",
    "compare": "fairtrial.api.compare",
    "compare_strategies": "fairtrial.api.compare",
    "StrategyComparison": "fairtrial.api.compare",
    "ablation": "fairtrial.api.ablation",
    "Ablation": "fairtrial.api.ablation",
    "LabTerms": "fairtrial.api.arms",
    "variance": "fairtrial.api.variance",
    "variance_by_stream": "fairtrial.api.by_stream",
    "power": "fairtrial.api.power",
    "bench": "fairtrial.api.bench",
    "Bench": "fairtrial.api.bench",
    "BenchTerms": "fairtrial.api.bench_runs",
    "bench_variants": "fairtrial.api.bench_pairs",
    "bench_revisions": "fairtrial.api.bench_pairs",
    "profile": "fairtrial.api.profile",
    "Profile": "fairtrial.api.profile",
    "ProfileTerms": "fairtrial.api.profile",
    "load_profile": "fairtrial.api.profile_diff",
    "diff_profiles": "fairtrial.api.profile_diff",
    "check_profile": "fairtrial.api.profile_diff",
    "ProfileDiff": "fairtrial.api.profile_diff",
    "sync": "fairtrial.api.sync",
    "Sync": "fairtrial.api.sync",
    "cost_performance": "fairtrial.api.cost_performance",
    "CostPerformance": "fairtrial.api.cost_performance",
    "recommend": "fairtrial.api.recommend",
    "Advice": "fairtrial.api.recommend",
    "Source": "fairtrial.api.points",
    "CostModel": "fairtrial.decide.cost",
    "CostPerformanceAnalysis": "fairtrial.decide.analysis",
    "compute_pareto_frontier": "fairtrial.decide.analysis",
    "CostPoint": "fairtrial.decide.points",
    "Constraints": "fairtrial.decide.choice",
    "compare_samples": "fairtrial.analyse.compare",
    "compare_to_target": "fairtrial.analyse.target",
    "aggregate": "fairtrial.analyse.aggregate",
    "SummaryRule": "fairtrial.analyse.summaries",
    "Columns": "fairtrial.record.tables",
    "SummaryOptions": "fairtrial.core.printed",
    "Comparison": "fairtrial.core.findings",
    "Estimate": "fairtrial.core.findings",
    "Verdict": "fairtrial.core.findings",
    "Study": "fairtrial.plan.study",
    "read_study": "fairtrial.plan.study",
    "write_study": "fairtrial.api.init",
    "doctor": "fairtrial.api.doctor",
    "FairtrialError": "fairtrial.core.errors",
    "init_artifact": "fairtrial.api.artifact",
    "add_file": "fairtrial.api.artifact",
    "cite": "fairtrial.api.artifact",
    "bundle": "fairtrial.api.bundle",
    "Bundled": "fairtrial.api.bundle",
    "BundleTerms": "fairtrial.api.bundle",
    "verify_bundle": "fairtrial.api.verify_bundle",
    "CheckedBundle": "fairtrial.api.verify_bundle",
    "export": "fairtrial.api.export",
    "deposit": "fairtrial.api.deposit",
    "Deposit": "fairtrial.api.deposit",
}

__all__ = [
    "Ablation", "Advice", "Analysis", "Bench", "BenchTerms", "BundleTerms", "Bundled", "CheckedBundle", "Columns",
    "Comparison", "Constraints", "CostModel", "CostPerformance", "CostPerformanceAnalysis", "CostPoint", "Deposit",
    "Detached", "Estimate", "Evaluated", "FairtrialError", "Intent", "LabTerms", "LaunchTerms", "Launched", "Profile",
    "ProfileDiff", "ProfileTerms", "Question", "Source", "StrategyComparison", "Study", "StudyState",
    "SummaryOptions", "SummaryRule",
    "Sweep", "Sync", "Trained", "Verdict", "__version__", "ablation", "add_file", "aggregate", "alpha", "alpha_sweep",
    "analyze", "analyze_by_plan", "bench", "bench_revisions", "bench_variants", "bundle", "check_profile", "cite",
    "compare", "compare_samples", "compare_strategies", "compare_to_target", "compute_pareto_frontier",
    "cost_performance", "deposit", "detach", "diff_profiles", "doctor", "evaluate", "export", "export_runs",
    "init_artifact", "launch", "list_runs", "load_profile", "power", "preregister", "profile", "query",
    "read_study", "recommend", "resume", "run", "show_run", "sweep", "sync",
    "temperature", "temperature_sweep", "train", "variance", "variance_by_stream", "verify_bundle", "watch_study",
    "write_study",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fairtrial' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


class _Fairtrial(ModuleType):
    """`fairtrial.train` is the verb. Importing the room `fairtrial/train/` must not take its name away."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Fairtrial
