"""Document 002: the plan that validates each performance phase of a GRPO pipeline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.documents.desk import Answer, Desk
from tests.documents.records import Item, field, fields, line, option, point, said, suite

DOCUMENT = "002"
AT = "profile"
SCRIPT = "uv run python scripts/"
TINY = "--groups 2 --samples 2 --horizon 1 --rank 4 --no-warmup"
ROLLOUT = f"profile rollout --steps 1 {TINY} --format json"
TRAINER = f"profile trainer --steps 1 {TINY} --format json"
E2E = "profile e2e --steps 4 --groups 2 --samples 2 --buffer-depth 3 --policy-lag 2"
SMALL_E2E = f"{E2E} --horizon 1 --rank 4 --no-warmup --format json"
TRAIN = "train grpo --steps 1 --groups 1 --samples 2 --horizon 1 --eval-episodes 1 --report-episodes 1"
REPLACED = "`profile` is one command for both scripts, and its target is its first word"


def items() -> list[Item]:
    return [*lines(), *options(), *outputs(), *specified()]


def lines() -> list[Item]:
    def of(section: str, script: str, ours: str, add: str = "", **expected: Any) -> Item:
        return line(DOCUMENT, section, f"{SCRIPT}{script}", ours, at=AT, add=add, differs=REPLACED, **expected)

    snapshot = ["^Snapshot: ", "^Trace: "]
    trainer = "profile_rollout.py --target trainer --steps 1 --groups 1 --samples 1"
    ours = "profile trainer --steps 1 --groups 1 --samples 1"
    return [
        suite(DOCUMENT, "Baseline", "uv run pytest -q"),
        of("Baseline", f"{trainer} --horizon 1 --no-warmup --profile-name local-trainer-profile",
           f"{ours} --horizon 1 --no-warmup --profile-name local-trainer-profile", says=snapshot),
        of("Phase 1", "benchmark_training.py --smoke --profile rollout --profile-name rollout-profile --no-warmup",
           "profile rollout --smoke --profile-name rollout-profile --no-warmup", says=snapshot),
        line(DOCUMENT, "Phase 1", "modal run app.py::train_grpo --detach", "launch grpo --seeds 1 --detach --dry-run", at=AT,
             says=["train grpo"], differs="no service is needed: `launch --detach` leaves it running; here it is only printed"),
        of("Phase 2", "benchmark_training.py --profile rollout --groups 2 --samples 2 --horizon 2 --use-state-cache "
           "--compact-prompts", "profile rollout --groups 2 --samples 2 --horizon 2 --use-state-cache --compact-prompts",
           add="--steps 1 --no-warmup", says=snapshot),
        line(DOCUMENT, "Phase 2", "modal logs run_rollout", "profile show rollout-profile", at=AT,
             says=["adapter hits", "adapter misses"], differs="hits and misses are counted instead of searched for in a log"),
        of("Phase 2", "profile_rollout.py --target rollout --steps 2 --groups 4 --samples 2 --compact-prompts",
           "profile rollout --steps 2 --groups 4 --samples 2 --compact-prompts", add="--horizon 1 --no-warmup",
           says=["tokens per second: generated"]),
        of("Phase 3", "profile_rollout.py --target trainer --steps 1 --groups 2 --samples 2 --compact-prompts",
           "profile trainer --steps 1 --groups 2 --samples 2 --compact-prompts", add="--horizon 1 --no-warmup",
           says=["^loss_forward ", "^backward "]),
        of("Phase 4", "benchmark_training.py --steps 4 --groups 2 --samples 2 --buffer-depth 3 --policy-lag 2 --profile e2e",
           E2E, add="--horizon 1 --no-warmup --rank 4", says=["^Policy lag: max ", "^Buffer: .*configured 3"]),
        of("Phase 5", "profile_rollout.py --target rollout --steps 1 --groups 2 --samples 2 --compact-prompts",
           "profile rollout --steps 1 --groups 2 --samples 2 --compact-prompts", add="--horizon 1 --no-warmup",
           says=snapshot),
        of("Phase 6", f"{trainer} --profile-name dashboard-check", f"{ours} --profile-name dashboard-check",
           add="--horizon 1 --no-warmup", says=snapshot),
        suite(DOCUMENT, "CI Coverage", "uv run pytest -q"),
        of("CI Coverage", f"{trainer} --horizon 1 --no-warmup --profile-name ci-trainer-profile --compact-prompts",
           f"{ours} --horizon 1 --no-warmup --profile-name ci-trainer-profile --compact-prompts", says=snapshot),
    ]  # fmt: skip


def options() -> list[Item]:
    """Each one on its own, against the smallest profile."""
    section = "Options"
    rollout: dict[str, tuple[str, str]] = {
        "--steps": ("--steps 2", "steps"),
        "--groups": ("--groups 1", "tokens.generated"),
        "--samples": ("--samples 3", "tokens.generated"),
        "--horizon": ("--horizon 2", "tokens.generated"),
        "--compact-prompts": ("--compact-prompts", "tokens"),
        "--profile-name": ("--profile-name mine", "name"),
    }
    return [
        *(option(DOCUMENT, section, f"`{flag}`", ROLLOUT, given, see, at=AT) for flag, (given, see) in rollout.items()),
        option(DOCUMENT, section, "`--use-state-cache`", f"{ROLLOUT} --steps 2", "--use-state-cache", "cache.state_hits",
               at=AT),
        option(DOCUMENT, section, "`--no-warmup`", "profile rollout --steps 1 --groups 1 --samples 2 --horizon 1 --format json",
               "--no-warmup", "configuration.steps", at=AT),
        point(DOCUMENT, section, "`--smoke`", "one step of 2 groups, 2 samples, horizon 1, compact prompts", smoke),
        point(DOCUMENT, section, "`--target rollout`, `--target trainer`, `--profile e2e`",
              "`profile rollout`, `profile trainer`, `profile e2e`", targets, differs=REPLACED),
        option(DOCUMENT, section, "`--buffer-depth`", SMALL_E2E, "--buffer-depth 1", "buffer_depth.configured", at=AT,
               becomes=1),
        option(DOCUMENT, section, "`--policy-lag`", SMALL_E2E, "--policy-lag 1", "max_policy_lag_steps", at=AT, becomes=1),
    ]  # fmt: skip


def smoke(desk: Desk) -> None:
    found = desk.run(AT, "profile rollout --smoke --no-warmup --format json").json
    plain = desk.run(AT, ROLLOUT).json
    assert found["steps"] == 1 and found["tokens"] != plain["tokens"]


def targets(desk: Desk) -> None:
    lanes = [set(desk.run(AT, typed).json["lanes"]) for typed in (ROLLOUT, TRAINER, SMALL_E2E)]
    assert lanes == [{"generation"}, {"training"}, {"generation 1", "training"}]


def outputs() -> list[Item]:
    return [
        point(DOCUMENT, "Phase 1", "a JSON snapshot is persisted", "`Snapshot: …/snapshot.json`", snapshot),
        point(DOCUMENT, "Baseline", "the printed trace directory", "`Trace: …/trace`", trace),
        point(DOCUMENT, "Phase 1", "`gpu_stats` events arrive", "`device_stats` events in every `grpo` run", device_stats,
              differs="they are written to events.jsonl and sent by `--otlp`; without a device the reason stands there"),
        field(DOCUMENT, "Phase 2", "`Adapter already cached locally`", ROLLOUT, "cache.adapter_hits", at=AT),
        point(DOCUMENT, "Phase 3", "`loss_forward_ms` ≈ `backward_ms`", "`profile check NAME 'loss…<=3*backward…'`", phases),
        point(DOCUMENT, "Phase 4", "`policy_lag_steps <= max_policy_lag_steps`",
              "`profile check NAME 'policy_lag_steps.max<=max_policy_lag_steps'`", lag),
        point(DOCUMENT, "Phase 4", "`buffer_depth` oscillates around the configured value",
              "`buffer_depth{configured, mean, min, max}`", depth,
              differs="the lag bound also limits how many rollouts may wait, and the profile says which of the two it was"),
        field(DOCUMENT, "Phase 5", "`timing/tokens_per_second`", ROLLOUT, "tokens_per_second.generated", at=AT),
        point(DOCUMENT, "Phase 5", "compare before and after compact prompts (≳30 %)", "`profile diff A B`", diff,
              differs="no percentage is promised: the gain is measured with an interval"),
        point(DOCUMENT, "Phase 6", "dashboards update in near real time", "`--otlp URL`", otlp,
              differs="events go to any OTLP receiver; there is no dashboard of ours yet"),
    ]  # fmt: skip


def snapshot(desk: Desk) -> None:
    found = json.loads(Path(desk.run(AT, ROLLOUT).json["snapshot"]).read_text())
    assert found["schema"] == 1 and found["mode"] == "rollout"


def trace(desk: Desk) -> None:
    assert (Path(desk.run(AT, ROLLOUT).json["trace"]) / "lanes.json").is_file()


def device_stats(desk: Desk) -> None:
    assert desk.run(AT, f"{TRAIN} --study stats --variant v").code == 0
    events = (desk.folder(AT) / "runs" / "stats" / "v.seed1072" / "events.jsonl").read_text().splitlines()
    found = [json.loads(each) for each in events if json.loads(each)["event"] == "device_stats"]
    assert found, "no device_stats event"
    assert all(each.get("devices") or each.get("unavailable") for each in found)


def phases(desk: Desk) -> None:
    found = desk.run(AT, TRAINER).json
    assert {"loss_forward_ms", "backward_ms", "optimizer_ms", "residual_ms"} <= set(found["phases_ms"])
    typed = "profile check trainer 'phases_ms.loss_forward_ms<={}*phases_ms.backward_ms'"
    assert desk.run(AT, typed.format(100)).code == 0 and desk.run(AT, typed.format(0)).code == 3


def lag(desk: Desk) -> None:
    assert desk.run(AT, SMALL_E2E).code == 0
    assert desk.run(AT, "profile check e2e 'policy_lag_steps.max<=max_policy_lag_steps'").code == 0
    refused = desk.run(AT, "profile check e2e 'policy_lag_steps.max>max_policy_lag_steps'")
    assert refused.code == 3


def depth(desk: Desk) -> None:
    """With a lag bound that permits it, the buffer fills to its setting; else the profile says what limits it."""
    found = desk.run(AT, f"{SMALL_E2E} --buffer-depth 1").json["buffer_depth"]
    assert found["max"] == 1 and found["min"] is not None and found["mean"] > 0, found
    limited = desk.run(AT, SMALL_E2E)
    assert limited.json["buffer_depth"]["max"] > 0, "the buffer stays empty"
    said("(?i)limit|no more than|bound")(Answer(0, json.dumps(limited.json), limited.err))


def diff(desk: Desk) -> None:
    desk.run(AT, f"{ROLLOUT} --steps 3 --profile-name full-prompts")
    desk.run(AT, f"{ROLLOUT} --steps 3 --compact-prompts --profile-name compact-prompts")
    told = desk.run(AT, "profile diff full-prompts compact-prompts --format json")
    assert told.code in (0, 3), told.err
    assert "legal" in json.dumps(told.json), "a comparison of prompts also says whether legality suffers"
    assert "reward" in json.dumps(told.json), "a comparison of prompts also says whether the reward suffers"


def otlp(desk: Desk) -> None:
    """Nobody listens there, and the training does not mind: it says what could not be sent."""
    told = desk.run(AT, f"{TRAIN} --otlp http://127.0.0.1:9 --study sent --variant v --format json")
    assert told.code == 0, told.err
    assert told.json["telemetry"]["endpoint"] == "http://127.0.0.1:9" and told.json["telemetry"]["dropped"] > 0


def specified() -> list[Item]:
    section = "profile"
    keys = ["phases_ms.generate", "phases_ms.tokenize", "phases_ms.loss_forward_ms", "phases_ms.backward_ms",
            "phases_ms.optimizer_ms", "phases_ms.residual_ms", "tokens_per_second.generated", "tokens_per_second.trained",
            "tokens_per_second.forwarded", "policy_lag_steps.max", "policy_lag_steps.mean", "max_policy_lag_steps",
            "buffer_depth.configured", "buffer_depth.mean", "buffer_depth.min", "buffer_depth.max", "cache.adapter_hits",
            "cache.adapter_misses", "cache.prefix_hits", "cache.state_hits"]  # fmt: skip
    return [
        *fields("commands", section, SMALL_E2E, keys, at=AT),
        point("commands", section, "`profile show NAME`", "`profile show NAME`", shown),
    ]


def shown(desk: Desk) -> None:
    desk.run(AT, f"{ROLLOUT} --profile-name mine")
    told = desk.run(AT, "profile show mine")
    assert told.code == 0 and "tokens per second" in told.out
