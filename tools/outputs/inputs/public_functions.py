"""What the commands do, through the public Python functions."""

import json
import warnings

import fairtrial

warnings.simplefilter("ignore", DeprecationWarning)  # old names, so that older versions can be recorded too

terms = fairtrial.LaunchTerms(jobs=1)
trained = fairtrial.train("fake", {"effect": 0.03, "steps": 20}, seed=1)
print(trained.run.name, trained.run.status, trained.run.final)
study = fairtrial.Study(
    study="tour", recipe="fake", options={"noise": 0.02, "steps": 20},
    variants={"control": {}, "candidate": {"effect": 0.03}}, seeds=5,
)  # fmt: skip
for arm in fairtrial.launch(study, terms=terms).arms:
    print(arm.variant, arm.n, arm.mean, arm.sd)
analysis = fairtrial.analyze("tour", question=fairtrial.Question(sesoi=0.005))
print(analysis)
[comparison] = analysis.comparisons
print(comparison.verdict, comparison.effect)
needed = fairtrial.power(sesoi=0.01, pilot=["tour:control"])
print(needed.seeds, fairtrial.variance("tour:control", threshold=0.02).n_min)
swept = fairtrial.sweep("fake", ["effect=0,0.02"], options={"steps": 10}, terms=fairtrial.LabTerms(runs=2, jobs=1))
print(swept.best_param, [(point.value, point.accuracy.value, point.accuracy.low) for point in swept.points])
print(sorted(row["run"] for row in fairtrial.list_runs(study="tour", where=["report_accuracy>0.7"])))
print(fairtrial.query("select variant, count(*) n, avg(value) mean from runs group by all order by all"))
samples = fairtrial.compare_samples([0.7, 0.71, 0.69, 0.72], [0.74, 0.76, 0.73, 0.75], paired=True)
print(samples.verdict, samples.effect.value, samples.effect.low, samples.effect.high)
points = [
    fairtrial.CostPoint("r8", hours=2.1, accuracy=0.845, memory=14),
    fairtrial.CostPoint("r32", hours=5.8, accuracy=[0.868, 0.872, 0.873], memory=18),
    fairtrial.CostPoint("full", hours=48.2, accuracy=0.882, memory=56),
]
priced = fairtrial.CostPerformanceAnalysis(fairtrial.CostModel.a100_80gb())
print([point.name for point in priced.pareto_frontier(points)])
print(*priced.recommend(points, fairtrial.Constraints(max_cost=50, min_accuracy=0.85)).rationale, sep="\n")
with fairtrial.run(seed=4, config={"lr": 0.1}, study="scripts", variant="v", best_metric="eval_loss") as run:
    for step in range(1, 5):
        run.log(step, train_loss=1 / step)
        run.evaluated(step, {"eval_loss": 1 / step})
        run.save(step, {"step": step})
print(json.dumps(fairtrial.show_run("scripts/v.seed4").run.metadata["final"]))
