"""Choose a configuration: your own measurements, priced on a GPU, under constraints."""

from fairtrial import Constraints, CostModel, CostPerformanceAnalysis, CostPoint

points = [
    CostPoint("r8", hours=2.1, accuracy=0.845, memory=14),
    CostPoint("r16", hours=3.2, accuracy=0.862, memory=15),
    CostPoint("r32", hours=5.8, accuracy=[0.868, 0.872, 0.873], memory=18),
    CostPoint("r64", hours=10.4, accuracy=[0.876, 0.877, 0.881], memory=22),
    CostPoint("full", hours=48.2, accuracy=0.882, memory=56),
]
analysis = CostPerformanceAnalysis(CostModel.a100_80gb())
print([point.name for point in analysis.pareto_frontier(points)])

advice = analysis.recommend(points, Constraints(max_cost=50, min_accuracy=0.85))
print(*advice.rationale, sep="\n")
