"""Frameworks that write files of their own: one function each, run in an environment that has it.

python framework_files.py transformers | sb3 | lightning | optuna | ray
Expected values: what the framework's own objects hold after the run.
"""

from __future__ import annotations

import csv
import math
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from _expected import fresh, points, write_expected


def transformers() -> None:
    import torch
    from transformers import Trainer, TrainingArguments

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def forward(self, x: Any, labels: Any) -> dict[str, Any]:
            return {"loss": ((self.layer(x) - labels) ** 2).mean(), "logits": self.layer(x)}

    data = [{"x": torch.tensor([i / 10]), "labels": torch.tensor([i / 5])} for i in range(32)]
    out = fresh("huggingface")
    with tempfile.TemporaryDirectory() as name:
        arguments = TrainingArguments(
            name, max_steps=12, logging_steps=2, eval_strategy="steps", eval_steps=4, save_steps=6, report_to=[],
            per_device_train_batch_size=4, use_cpu=True, seed=3, disable_tqdm=True,
        )  # fmt: skip
        trainer = Trainer(Model(), arguments, train_dataset=data, eval_dataset=data)
        trainer.train()
        trainer.save_state()
        history = trainer.state.log_history
        for file in sorted(Path(name).rglob("trainer_state.json")):
            kept = out / "run" / file.relative_to(name)
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, kept)
    series: dict[str, list[tuple[int, float]]] = {}
    for row in history[:-1]:
        for key, value in row.items():
            if key != "step":
                series.setdefault(key, []).append((row["step"], value))
    totals = {key: value for key, value in history[-1].items() if key != "step"}
    run = {"series": {k: points([s for s, _ in v], [x for _, x in v]) for k, v in series.items()}, "summary": totals}
    write_expected(out, {"run": run}, "transformers", "torch")


def sb3() -> None:
    import gymnasium
    import numpy
    from stable_baselines3 import A2C
    from stable_baselines3.common.callbacks import EvalCallback
    from stable_baselines3.common.monitor import Monitor

    out = fresh("sb3")
    folder = out / "run"
    folder.mkdir()
    environment = Monitor(gymnasium.make("CartPole-v1"), str(folder / "train"))
    evaluation = EvalCallback(
        Monitor(gymnasium.make("CartPole-v1")), log_path=str(folder), eval_freq=200, n_eval_episodes=3, verbose=0
    )
    A2C("MlpPolicy", environment, seed=1, device="cpu").learn(800, callback=evaluation)
    environment.close()
    with numpy.load(folder / "evaluations.npz") as archive:
        steps = archive["timesteps"].tolist()
        series = {
            "eval/mean_reward": points(steps, archive["results"].mean(axis=1).tolist()),
            "eval/mean_ep_length": points(steps, archive["ep_lengths"].mean(axis=1).tolist()),
        }
    lengths, rewards = environment.get_episode_lengths(), environment.get_episode_rewards()
    ends = numpy.cumsum(lengths).tolist()
    monitor = {
        "r": points(ends, [round(reward, 6) for reward in rewards]),
        "l": points(ends, lengths),
    }
    write_expected(out, {"run": {"series": series}, "run/train": {"series": monitor}}, "stable-baselines3")


def lightning() -> None:
    import lightning
    import torch
    from lightning.pytorch.loggers import CSVLogger

    class Module(lightning.LightningModule):
        def __init__(self, lr: float, width: int) -> None:
            super().__init__()
            self.save_hyperparameters()
            self.layer = torch.nn.Linear(1, 1)

        def training_step(self, batch: Any, index: int) -> Any:
            loss = (self.layer(batch[0]) ** 2).mean()
            self.log("train_loss", loss if index != 3 else loss * math.nan)
            return loss

        def validation_step(self, batch: Any, index: int) -> None:
            self.log("val_loss", (self.layer(batch[0]) ** 2).mean())

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=self.hparams.lr)

    out = fresh("lightning")
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.arange(16.0)[:, None] / 16), batch_size=2)
    runs = {}
    for version in (0, 1):
        logger = CSVLogger(str(out), name="logs", version=version, flush_logs_every_n_steps=1)
        trainer = lightning.Trainer(
            max_epochs=2, logger=logger, log_every_n_steps=2, enable_checkpointing=False, accelerator="cpu",
            enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        trainer.fit(Module(lr=0.01 * (version + 1), width=8), data, data)
        series: dict[str, list[tuple[int, float]]] = {}
        with (out / "logs" / f"version_{version}" / "metrics.csv").open() as file:
            for row in csv.DictReader(file):
                for key, text in row.items():
                    if key != "step" and text:
                        series.setdefault(key, []).append((int(row["step"]), float(text)))
        runs[f"logs/version_{version}"] = {
            "series": {k: points([s for s, _ in v], [x for _, x in v]) for k, v in series.items()},
            "config": {"lr": 0.01 * (version + 1), "width": 8},
        }
    write_expected(out, runs, "lightning", "torch")


def optuna() -> None:
    import optuna as library
    from optuna.storages.journal import JournalFileBackend

    out = fresh("optuna")
    storages = {
        "study.db": library.storages.RDBStorage(f"sqlite:///{out}/study.db"),
        "journal.log": library.storages.JournalStorage(JournalFileBackend(str(out / "journal.log"))),
    }

    def objective(trial: Any) -> float:
        x = trial.suggest_float("x", -1, 1)
        trial.suggest_categorical("kind", ["a", "b", None])
        trial.suggest_int("width", 8, 64, step=8)
        trial.suggest_float("lr", 1e-5, 1e-1, log=True)
        trial.set_user_attr("seed", trial.number)
        for step in range(3):
            trial.report([0.5, math.inf, x][step], step)
        if trial.number == 2:
            raise library.TrialPruned
        if trial.number == 3:
            raise ValueError("it broke")
        return math.inf if trial.number == 4 else x * x

    library.logging.disable_default_handler()
    document: dict[str, Any] = {}
    for name, storage in storages.items():
        study = library.create_study(
            study_name=f"of {name.split('.')[0]}", storage=storage, sampler=library.samplers.RandomSampler(seed=1)
        )
        study.optimize(objective, n_trials=5, catch=(ValueError,))
        for trial in study.trials:
            series = {}
            if trial.intermediate_values:
                steps = sorted(trial.intermediate_values)
                series["intermediate_value"] = points(steps, [trial.intermediate_values[step] for step in steps])
            if trial.values is not None and trial.state.name == "COMPLETE":
                series["value"] = points([0], trial.values)
            config = {**trial.params, "seed": trial.number}
            state = {"COMPLETE": "completed", "FAIL": "failed", "PRUNED": "interrupted", "RUNNING": "running"}
            document[f"{name}: {study.study_name}/{trial.number}"] = {
                "series": series, "config": config, "status": state[trial.state.name],
            }  # fmt: skip
    write_expected(out, document, "optuna")


def ray() -> None:
    import ray as library
    from ray import tune

    def train(config: dict[str, Any]) -> None:
        for step in range(4):
            tune.report(
                {"loss": config["lr"] * step, "nested": {"a": step + 0.5}, "bad": [1.0, math.nan, math.inf, 2][step]}
            )
        if config["lr"] > 0.4:
            raise ValueError("it broke")

    os.environ |= {"TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "0", "RAY_AIR_NEW_OUTPUT": "0"}
    out = fresh("ray_tune")
    library.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    with tempfile.TemporaryDirectory() as name:
        tuner = tune.Tuner(
            train,
            param_space={"lr": tune.grid_search([0.1, 0.5]), "net": {"width": 8}, "seed": 3},
            run_config=tune.RunConfig(name="experiment", storage_path=name),
        )
        results = tuner.fit()
        runs = {}
        for number, result in enumerate(results):
            folder = Path(result.path)
            kept = out / "experiment" / f"trial_{number}"
            kept.mkdir(parents=True)
            for file in ("progress.csv", "result.json", "params.json", "error.txt"):
                if (folder / file).exists():
                    text = (folder / file).read_text().replace(str(folder), "trial")
                    (kept / file).write_text(text if file != "error.txt" else "it broke\n")
            frame = result.metrics_dataframe
            series = {
                metric.replace("/", "."): points(frame["training_iteration"].tolist(), frame[metric].tolist())
                for metric in ("loss", "nested/a", "bad")
            }
            runs[f"experiment/trial_{number}"] = {
                "series": series, "config": {"lr": result.config["lr"], "net.width": 8, "seed": 3},
                "status": "failed" if result.error else None,
            }  # fmt: skip
    library.shutdown()
    write_expected(out, runs, "ray")


if __name__ == "__main__":
    globals()[sys.argv[1]]()
