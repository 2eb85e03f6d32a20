"""The public names of `fairtrial`: where each one is defined, and what it is for.

`fairtrial/__init__.py` imports a name from its module on first use. `help(fairtrial)` and the list of names in the
documentation show the groups and lines below.
"""

from __future__ import annotations

from typing import NamedTuple


class PublicName(NamedTuple):
    """Where a public name is defined, and what it is for."""

    module: str
    purpose: str


PUBLIC_NAMES: dict[str, dict[str, PublicName]] = {
    "Run and record": {
        "run": PublicName("fairtrial.api.running.script", "Record the training of your own script."),
        "train": PublicName("fairtrial.api.running.train", "Train a recipe once and record the run."),
        "launch": PublicName(
            "fairtrial.api.running.launch", "Run every missing cell of a study and return the state of the whole study."
        ),
        "detach": PublicName("fairtrial.api.running.detach", "Launch a study in a process that outlives this one."),
        "evaluate": PublicName(
            "fairtrial.api.running.evaluate", "Re-evaluate checkpoints of runs and store each result with its run."
        ),
        "export_runs": PublicName(
            "fairtrial.api.running.runs", "Yield one row per metric value of the chosen runs, for other tools to read."
        ),
        "list_runs": PublicName("fairtrial.api.running.runs", "Return one row per run, newest first, filtered."),
        "query": PublicName("fairtrial.api.running.runs", "Query the store with SQL."),
        "read_study": PublicName("fairtrial.plan.study", "Read a study from a YAML file."),
        "resume": PublicName(
            "fairtrial.api.running.train",
            "Resume an interrupted run from its last checkpoint, with its original options.",
        ),
        "show_run": PublicName("fairtrial.api.running.runs", "Return a run with its metrics and log."),
        "watch_study": PublicName(
            "fairtrial.api.running.watch", "Return the current state of a study, while it runs or later."
        ),
        "write_study": PublicName("fairtrial.api.running.init", "Write a commented study file for a recipe."),
        "CheckpointEvaluations": PublicName(
            "fairtrial.api.running.evaluate",
            "All evaluated checkpoints, and the mean gap between selection and confirmation.",
        ),
        "Detached": PublicName("fairtrial.api.running.detach", "A launcher in the background."),
        "Launched": PublicName("fairtrial.api.running.launch", "The state of a study after a launch."),
        "Study": PublicName("fairtrial.plan.study", "A study file."),
        "StudyState": PublicName("fairtrial.api.running.watch", "A snapshot of all cells of a study."),
        "Trained": PublicName("fairtrial.api.running.train", "A run, and whether it was already complete."),
        "ExecutionPolicy": PublicName(
            "fairtrial.launch.policy", "How to execute runs: where, how many at once, retries, time limits."
        ),
    },
    "Compare": {
        "compare": PublicName(
            "fairtrial.api.lab.compare",
            "Compare two lists of scores, mappings, frames, variants or lists of runs; return the verdict.",
        ),
        "analyze": PublicName(
            "fairtrial.api.comparing.analyze",
            "Compare variants of a study, a data frame, chosen runs or a file, and give the verdict.",
        ),
        "aggregate": PublicName(
            "fairtrial.stats.aggregate", "Aggregate a table of runs × tasks to one number with a confidence interval."
        ),
        "compare_samples": PublicName(
            "fairtrial.stats.compare",
            "Compare two samples by position or unpaired; every statistical choice is a keyword.",
        ),
        "compare_to_target": PublicName("fairtrial.stats.target", "Compare the mean of one arm with a fixed value."),
        "power": PublicName(
            "fairtrial.api.comparing.power", "Compute how many seeds detect a difference, and their hours and price."
        ),
        "variance": PublicName(
            "fairtrial.api.comparing.variance", "Measure how noisy one variant is, and how many seeds are enough."
        ),
        "variance_by_stream": PublicName(
            "fairtrial.api.comparing.by_stream", "Rank random streams by the noise that they cause."
        ),
        "Analysis": PublicName(
            "fairtrial.api.comparing.analysis", "The result of an analysis: the verdicts and the data behind them."
        ),
        "Comparison": PublicName("fairtrial.core.findings", "Candidate against control."),
        "Estimate": PublicName("fairtrial.core.findings", "A value and its confidence interval."),
        "Question": PublicName("fairtrial.api.comparing.analysis", "The question to answer with the runs."),
        "SummaryOptions": PublicName(
            "fairtrial.core.printed",
            "Information that a table of means does not contain, and options for its analysis.",
        ),
        "SummaryRule": PublicName("fairtrial.stats.summaries", "The rule that turns a series into a number."),
        "Verdict": PublicName("fairtrial.core.findings", "better, worse, equivalent or inconclusive."),
        "Columns": PublicName("fairtrial.core.readers", "The columns of a table: variant, seed, step and so on."),
    },
    "Sweeps, strategies and ablations": {
        "ablation": PublicName(
            "fairtrial.api.lab.ablation", "Remove components from a base and measure the change, paired by seed."
        ),
        "alpha": PublicName("fairtrial.api.lab.sweep", "Another name of alpha_sweep."),
        "alpha_sweep": PublicName(
            "fairtrial.api.lab.sweep", "Distill with every weight of the teacher (alpha) in a range."
        ),
        "compare_strategies": PublicName(
            "fairtrial.api.lab.compare", "Distill with several strategies on the same seeds and compare them."
        ),
        "sweep": PublicName(
            "fairtrial.api.lab.sweep", "Train a recipe at every setting of a grid; find the best and those like it."
        ),
        "temperature": PublicName("fairtrial.api.lab.sweep", "Another name of temperature_sweep."),
        "temperature_sweep": PublicName("fairtrial.api.lab.sweep", "Distill at every temperature of a range."),
        "Ablation": PublicName(
            "fairtrial.api.lab.ablation", "The full model first, then one row per set of removed components."
        ),
        "LabConfig": PublicName(
            "fairtrial.api.lab.arms", "How a lab command runs and judges, apart from the question that it asks."
        ),
        "StrategyComparison": PublicName(
            "fairtrial.api.lab.compare",
            "Strategies, best first, and the comparisons of all pairs, judged as one family.",
        ),
        "Sweep": PublicName("fairtrial.api.lab.sweep", "A finished sweep."),
    },
    "Prices and choices": {
        "compute_pareto_frontier": PublicName(
            "fairtrial.costs.analysis", "Return the points that no other point dominates, cheapest first."
        ),
        "cost_performance": PublicName(
            "fairtrial.api.pricing.cost_performance", "Price configurations on a GPU and find the Pareto frontier."
        ),
        "recommend": PublicName(
            "fairtrial.api.pricing.recommend",
            "Find the best configuration within limits of cost, time, memory and accuracy.",
        ),
        "Advice": PublicName(
            "fairtrial.api.pricing.recommend", "The recommendation, the points that it is based on, and cautions."
        ),
        "Constraints": PublicName("fairtrial.costs.choice", "Limits for a configuration."),
        "CostModel": PublicName("fairtrial.costs.cost", "Prices points on one card."),
        "CostPerformance": PublicName(
            "fairtrial.api.pricing.cost_performance",
            "Every configuration priced on one card, with the Pareto frontier of the objectives.",
        ),
        "CostPerformanceAnalysis": PublicName(
            "fairtrial.costs.analysis",
            "Prices configurations on a card, finds the frontier, and recommends under constraints.",
        ),
        "CostPoint": PublicName("fairtrial.costs.points", "One configuration."),
        "Source": PublicName("fairtrial.api.pricing.points", "Where the points come from."),
    },
    "Step times, profiles and checks": {
        "bench": PublicName("fairtrial.api.benchmarking.bench", "Take real training steps and measure what they cost."),
        "bench_revisions": PublicName(
            "fairtrial.api.benchmarking.bench_pairs",
            "Time the code of two revisions alternately, each time in a separate process.",
        ),
        "bench_variants": PublicName(
            "fairtrial.api.benchmarking.bench_pairs", "Time two sets of options alternately in one process."
        ),
        "check_profile": PublicName("fairtrial.api.benchmarking.profile_diff", "Check each expression on a snapshot."),
        "diff_profiles": PublicName(
            "fairtrial.api.benchmarking.profile_diff", "Compare the time that two profiles took for the same work."
        ),
        "doctor": PublicName(
            "fairtrial.api.benchmarking.doctor",
            "Run all checks, and return them with the facts about the machine that they are based on.",
        ),
        "load_profile": PublicName(
            "fairtrial.api.benchmarking.profile_diff",
            "Return the snapshot with this name, or in this file, and its path.",
        ),
        "profile": PublicName(
            "fairtrial.api.benchmarking.profile",
            "Measure rollouts, updates on rollouts, or both together, and save the result under a name.",
        ),
        "sync": PublicName("fairtrial.api.benchmarking.sync", "Compare the options of two Click or Typer commands."),
        "Bench": PublicName(
            "fairtrial.api.benchmarking.bench", "Result of a measurement, computed from the steady steps."
        ),
        "BenchTerms": PublicName("fairtrial.api.benchmarking.bench_runs", "Settings of a measurement."),
        "Profile": PublicName("fairtrial.api.benchmarking.profile", "A snapshot that was written, and its location."),
        "ProfileDiff": PublicName(
            "fairtrial.api.benchmarking.profile_diff", "The change of the time per step between two profiles."
        ),
        "ProfileTerms": PublicName("fairtrial.api.benchmarking.profile", "Settings of a measurement."),
        "Sync": PublicName("fairtrial.api.benchmarking.sync", "Result of comparing the options of two programs."),
    },
    "Evidence": {
        "add_file": PublicName(
            "fairtrial.api.evidence.artifact",
            "Add a file, such as redirected output, to the project; return its name there.",
        ),
        "analyze_by_plan": PublicName(
            "fairtrial.api.evidence.preregistered_analysis", "Run the registered analysis on the registered runs."
        ),
        "bundle": PublicName(
            "fairtrial.api.evidence.bundle", "Make the bundle of a project: a zip, or a folder with the same content."
        ),
        "cite": PublicName(
            "fairtrial.api.evidence.artifact", "Return the citation of the artifact as bibtex, cff or apa."
        ),
        "deposit": PublicName(
            "fairtrial.api.evidence.deposit", "Prepare the upload of a bundle, or upload it as a draft."
        ),
        "export": PublicName("fairtrial.api.evidence.export", "Write the export and return its path."),
        "init_artifact": PublicName(
            "fairtrial.api.evidence.artifact", "Write artifact.yaml and CITATION.cff into a folder that has neither."
        ),
        "preregister": PublicName("fairtrial.api.evidence.preregister", "Write, hash, sign and list a registration."),
        "verify_bundle": PublicName("fairtrial.api.evidence.verify_bundle", "Check a bundle, zipped or unpacked."),
        "Bundled": PublicName("fairtrial.api.evidence.bundle", "A bundle that was written, or would be in a dry run."),
        "BundleTerms": PublicName("fairtrial.api.evidence.bundle", "What goes into a bundle."),
        "CheckedBundle": PublicName(
            "fairtrial.api.evidence.verify_bundle", "Results of the checks of a bundle, and of the registrations in it."
        ),
        "Deposit": PublicName("fairtrial.api.evidence.deposit", "A prepared upload, and the draft that it created."),
        "Intent": PublicName(
            "fairtrial.api.evidence.preregister", "What to register: a study, its analysis, and its stopping rule."
        ),
    },
    "Errors": {
        "FairtrialError": PublicName("fairtrial.core.errors", "An error that the user can act on."),
    },
}
"""Heading of a group → its names, in the order in which people need them."""


def overview() -> str:
    """Return the names of every group with one line each."""
    widest = max(len(name) for group in PUBLIC_NAMES.values() for name in group)
    parts = []
    for heading, names in PUBLIC_NAMES.items():
        lines = [f"    {name:<{widest}}  {known.purpose}" for name, known in names.items()]
        parts.append("\n".join([heading, *lines]))
    return "\n\n".join(parts)
