"""A tour of the Python API on simulated data, in a store that is deleted at the end."""

import tempfile

import fairtrial


def main():
    with tempfile.TemporaryDirectory() as store:
        first = fairtrial.train("fake", {"effect": 0.03}, seed=1, store=store)
        print(first.run.name, first.run.status, first.run.final["report_accuracy"])
        print("second call, already done:", fairtrial.train("fake", {"effect": 0.03}, seed=1, store=store).already_done)

        study = fairtrial.Study(
            study="tour",
            recipe="fake",
            options={"noise": 0.02},
            variants={"control": {}, "candidate": {"effect": 0.03}},
            seeds=5,
        )
        launched = fairtrial.launch(study, store=store, terms=fairtrial.ExecutionPolicy(jobs=2))
        for arm in launched.arms:
            print(f"{arm.variant}: {arm.n} runs, mean {arm.mean:.4f}, sd {arm.sd:.4f}")
        analysis = fairtrial.analyze("tour", store=store, question=fairtrial.Question(sesoi=0.005))
        print(analysis)
        [comparison] = analysis.comparisons
        print(comparison.verdict, comparison.effect.low, comparison.effect.high)
        print("seeds needed to detect 0.01:", fairtrial.power(sesoi=0.01, pilot=["tour:control"], store=store).seeds)
        print("seeds for 2 % precision:", fairtrial.variance("tour:control", threshold=0.02, store=store).n_min)

        good = fairtrial.list_runs(store=store, study="tour", where=["report_accuracy>0.7"])
        print("above 0.7:", sorted(row["run"] for row in good))
        shown = fairtrial.show_run("tour/candidate.seed1072", store=store)
        print(
            "best checkpoint at step",
            shown.run.metadata["best_checkpoint_step"],
            "with",
            shown.run.metadata["best_metric_value"],
        )
        _, rows = fairtrial.query("select variant, count(*), avg(value) from runs group by variant", store=store)
        print(sorted(rows))


if __name__ == "__main__":
    main()
