"""Sweeps from Python: the best value, the values indistinguishable from it, a confirmation, and an ablation."""

import fairtrial

SMALL = {"steps": 200, "labels": 500, "teacher_steps": 200, "teacher_width": 8}

found = fairtrial.temperature_sweep(1, 5, 2, runs=3, options=SMALL, confirm=3)
print(f"best temperature {found.best_param}, accuracy {found.best.accuracy.value:.3f}")
print("statistically indistinguishable from it:", [point.value for point in found.alike or ()])
if found.confirmation is not None:
    print(f"on new seeds and new data: {found.confirmation.accuracy.value:.3f}")
    print(found.confirmation.analysis.comparisons[0] if found.confirmation.analysis else "the default won")

grid = fairtrial.sweep("classify", ["learning_rate=log:1e-3:1e-1:5"], options={"model": "linear", "steps": 200})
print(f"best learning rate {grid.best_param}")

terms = fairtrial.LabConfig(runs=2)
strategies = fairtrial.compare_strategies(["kd"], options={**SMALL, "student": "mlp"}, terms=terms)
for each in strategies.strategies:
    print(f"{each.name}: {each.accuracy.value:.3f} in {each.time_s:.1f} s")

ablation = fairtrial.ablation(["temperature", "soft_targets"], base={"strategy": "kd"}, options=SMALL, terms=terms)
for row in ablation.rows[1:]:
    print(f"without {'+'.join(row.removed)}: {row.effect.effect.value:+.3f}" if row.effect else "no value")
