"""What commands.md adds to the reference documents: options of every command, exit codes, keys and files."""

from __future__ import annotations

import contextlib
import csv
import importlib
import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Sequence
from typing import Any
from unittest import mock

from fairtrial.core.errors import FairtrialError
from fairtrial.core.specs import FIXED_SEEDS
from fairtrial.recipes._references import ATARI
from tests.documents.desk import Answer, Desk
from tests.documents.distillation import ABLATION, CNN, COMPARE, COST, RECOMMEND, SMALL, TEMPERATURE
from tests.documents.in_process import InProcess
from tests.documents.places import metadata
from tests.documents.records import Check, Item, See, field, fields, look, option, point, printed, said

compare_module = importlib.import_module("fairtrial.api.lab.compare")

DOCUMENT = "commands"
JSON = "--format json"
ANALYZE = f"analyze s --control base --candidate new {JSON}"
FROM = f"analyze --from results.csv --variant-column agent --seed-column run --metric score {JSON}"
POWER = f"power --sesoi 0.01 --sd 0.02 {JSON}"
BENCH = f"bench fake --max-batches 30 --no-trials {JSON}"
TRAIN = f"train fake --steps 20 --eval-every 5 {JSON}"
SWEEP = f"sweep fake --steps 5 --param effect=0.0,0.1 --runs 2 {JSON}"


def items() -> list[Item]:
    return [*everywhere(), *init(), *train(), *bench(), *launch(), *runs_and_doctor(), *sweeps(), *lab(), *choosing(),
            *variance(), *analyze(), *power(), *evaluate(), *script(), *verbs()]  # fmt: skip


def _options(section: str, base: str, at: str, rows: Sequence[tuple[str, str, See]]) -> list[Item]:
    """Options of one command, each against the same base."""
    return [option(DOCUMENT, section, theirs, base, given, see, at=at, code=None) for theirs, given, see in rows]


# Everywhere.


def everywhere() -> list[Item]:
    section, base = "Everywhere", "analyze s"
    return [
        *(option(DOCUMENT, section, f"`--format {kind}`", base, f"--format {kind}", printed, at="fake")
          for kind in ("json", "csv", "markdown", "latex")),
        point(DOCUMENT, section, "`--output FILE`: the suffix chooses the format, png, svg or pdf too", "`--output FILE`",
              by_suffix),
        option(DOCUMENT, section, "`--store`", "runs list --format json", "--store elsewhere", printed, at="fake"),
        point(DOCUMENT, section, "`--config FILE` (flags win)", "`--config FILE`", config_file),
        option(DOCUMENT, section, "`--quiet`", "launch fake --steps 5 --seeds 2 --base-run-name q", "--quiet",
               lambda answer: answer.err, at="fake"),
        point(DOCUMENT, section, "`--no-color`", "`--no-color`", no_color),
        point(DOCUMENT, section, "`--debug`", "`--debug`", traced),
        point(DOCUMENT, section, 'JSON: exactly one document on standard output, with `"schema": 1`', "the same, errors included",
              one_document),
        option(DOCUMENT, section, "`--level 0.95`", f"{COMPARE} {JSON}", "--level 0.9", "strategies.0.ci", at="lab"),
        *_options(section, f"{ANALYZE} --metric eval_accuracy --summary.type auc", "fake", [
            ("`--summary.window`", "--summary.window 10:30", "comparisons.0.effect"),
            ("`--summary.percent`", "--summary.percent 0.5", "comparisons.0.effect"),
        ]),
        option(DOCUMENT, section, "`--summary.percent-window`",
               f"{ANALYZE} --metric eval_accuracy --summary.type auc --summary.percent 0.5", "--summary.percent-window first",
               "comparisons.0.effect", at="fake"),
        *(option(DOCUMENT, section, f"a run named by {how}", f"runs export s/third.seed1072 {JSON}", name, printed, at="fake")
          for how, name in (("id", "base.seed1072"), ("path", "runs/s/base.seed2043"), ("glob", "'s/base.*'"))),
        point(DOCUMENT, section, "a variant as `STUDY:VARIANT`", "the same", by_variant),
        option(DOCUMENT, section, "`--seeds` is a count or a list", f"sweep fake --steps 5 --param effect=0.0,0.1 {JSON}",
               "--seeds 5,6", "results.0.runs", at="fake", becomes=2),
        point(DOCUMENT, section, "the fixed list of seeds; extending keeps the first", "the same", extended),
    ]  # fmt: skip


def by_suffix(desk: Desk) -> None:
    starts = {
        "out.json": b"{",
        "out.csv": b"",
        "out.md": b"",
        "out.png": b"\x89PNG",
        "out.svg": b"<svg",
        "out.pdf": b"%PDF",
    }
    contents = set()
    for name, start in starts.items():
        assert desk.run("fake", f"analyze s --control base --candidate new --output {name}").code == 0
        content = (desk.folder("fake") / name).read_bytes()
        assert content.startswith(start), name
        contents.add(content)
    assert len(contents) == len(starts)


def config_file(desk: Desk) -> None:
    (desk.folder("fake") / "options.yaml").write_text("alpha: 0.2\nsesoi: 0.03\n")
    told = desk.run("fake", f"{ANALYZE} --config options.yaml --alpha 0.01").json
    assert told["comparisons"][0]["effect"]["level"] == 0.99, "the flag wins"
    assert told["comparisons"][0]["exceeds_sesoi"] is not None, "the file's value counts"


def no_color(desk: Desk) -> None:
    colored, plain = (_on_a_terminal(desk, f"runs list{flag}") for flag in ("", " --no-color"))
    assert "\x1b[32m" in colored and "\x1b[3" not in plain


def _on_a_terminal(desk: Desk, typed: str) -> str:
    ours, theirs = pty.openpty()
    with open(ours, encoding="utf-8", errors="replace") as screen:
        process = subprocess.Popen(
            [sys.executable, "-m", "fairtrial", *typed.split()], cwd=desk.folder("fake"), stdin=theirs, stdout=theirs,
            stderr=theirs, env={**os.environ, "FAIRTRIAL_STORE": "runs", "TERM": "xterm-256color"},
        )  # fmt: skip
        os.close(theirs)
        text = ""
        with contextlib.suppress(OSError):  # Linux says so when the other side has closed
            while read := screen.read(1024):
                text += read
        process.wait()
    return text


def traced(desk: Desk) -> None:
    """An error is one sentence; with --debug it is raised, and Python shows its whole trace."""
    assert desk.run("fake", "analyze nothing-there").code == 1
    try:
        desk.run("fake", "analyze nothing-there --debug")
    except FairtrialError:
        return
    raise AssertionError("--debug hides the error")


def one_document(desk: Desk) -> None:
    for typed in (ANALYZE, POWER, TRAIN, f"runs list {JSON}", f"analyze nothing-there {JSON}"):
        assert desk.run("fake", typed).json["schema"] == 1


def by_variant(desk: Desk) -> None:
    first, second = (desk.run("fake", f"variance s:{name} {JSON}").json["auc"] for name in ("base", "new"))
    assert first != second


def extended(desk: Desk) -> None:
    base = f"launch fake --steps 5 --base-run-name longer {JSON} --seeds"
    assert desk.run("fake", f"{base} 2").code == 0 and desk.run("fake", f"{base} 4").code == 0
    seeds = sorted(path.name for path in (desk.folder("fake") / "runs" / "longer").glob("default.seed*"))
    assert seeds == sorted(f"default.seed{seed}" for seed in FIXED_SEEDS[:4])


# init, train, bench.


def init() -> list[Item]:
    section = "init, STUDY.yaml"
    keys = (
        "study",
        "recipe",
        "options",
        "variants",
        "seeds",
        "metric",
        "direction",
        "summary",
        "sesoi",
        "alpha",
        "benchmark",
    )
    return [
        *(point(DOCUMENT, section, f"`{key}` in the study file", f"`{key}:`", writes(key)) for key in keys),
        point(DOCUMENT, section, "unknown keys are errors with the nearest name", "the same", nearest_key),
    ]


def writes(key: str) -> Check:
    def check(desk: Desk) -> None:
        assert desk.run("trained", "init --recipe ppo --output documented.yaml").code == 0
        text = (desk.folder("trained") / "documented.yaml").read_text()
        assert any(row.startswith((f"{key}:", f"# {key}:")) for row in text.splitlines())

    return check


def nearest_key(desk: Desk) -> None:
    (desk.folder("fake") / "typo.yaml").write_text("study: t\nrecipe: fake\nvariant: {a: {}}\n")
    told = desk.run("fake", "launch typo.yaml --dry-run")
    assert told.code in (1, 2) and "variants" in told.err


def train() -> list[Item]:
    section, at = "train, bench", "trained"
    base = f"{TRAIN} --study o --replace"
    return [
        *_options(section, base, at, [
            ("`--steps`", "--steps 10", "best_checkpoint_step"),
            ("`--seed`", "--seed 2043", "run"),
            ("`--best-metric`, `--best-mode max|min`", "--best-metric eval_accuracy --best-mode min", "best_checkpoint_step"),
        ]),
        point(DOCUMENT, section, "`--eval-every`", "`--eval-every N`", evaluations),
        point(DOCUMENT, section, "`--checkpoint-every`", "`--checkpoint-every N`", saved),
        point(DOCUMENT, section, "`--device`", "`--device cpu`", device),
        point(DOCUMENT, section, "`--threads` (default 1)", "`--threads N`", threads),
        point(DOCUMENT, section, "`--resume RUN`", "`train --resume RUN`", resumed),
        point(DOCUMENT, section, "`--keep-best K`", "`--keep-best K`", keep_best),
        point(DOCUMENT, section, "`--again`", "`--again`", again),
        point(DOCUMENT, section, "`--replace`", "`--replace`", replaced),
        point(DOCUMENT, section, "`train ./my_recipe.py`", "`train ./my_recipe.py`", own_recipe),
        *(point(DOCUMENT, section, f"`{typed}`", f"`{typed}`", main_choices(typed, small)) for typed, small in (
            ("classify --model M --data D", "classify --model linear --data digits --steps 2"),
            ("distill --strategy S --temperature T --alpha A --teacher M --student M",
             "distill --strategy kd --temperature 2 --alpha 0.5 --teacher mlp --student linear --teacher-steps 2 --steps 2 "
             "--labels 100"),
            ("finetune --method full|lora --rank R",
             "finetune --method lora --rank 4 --steps 2 --pretrain-steps 2 --labels 100"),
            ("ppo --env ENV_ID --architecture A", "ppo --env Acrobot-v1 --architecture gru --steps 1 --eval-episodes 1 "
             "--report-episodes 1 --envs 2 --rollout 4"),
            ("grpo --game G --groups --samples --horizon", "grpo --game orders --groups 1 --samples 2 --horizon 1 --steps 1 "
             "--eval-episodes 1 --report-episodes 1"),
        )),
    ]  # fmt: skip


def files(desk: Desk, run: str, pattern: str = "checkpoints/*.pt") -> set[str]:
    return {path.name for path in (desk.folder("trained") / "runs" / run).glob(pattern)}


def _trained(desk: Desk, variant: str, given: str = "") -> dict[str, Any]:
    told = desk.run("trained", f"{TRAIN} --study o2 --variant {variant} {given}")
    assert told.code == 0, told.shortened
    found: dict[str, Any] = told.json
    return found


def evaluations(desk: Desk) -> None:
    _trained(desk, "often", "--eval-every 2")
    _trained(desk, "seldom", "--eval-every 10")
    often, seldom = (desk.run("trained", f"runs export o2/{name}.seed1072 --metric eval_accuracy").out.count("\n")
                     for name in ("often", "seldom"))  # fmt: skip
    assert often - seldom == 8


def saved(desk: Desk) -> None:
    _trained(desk, "saves", "--checkpoint-every 10 --keep-best 1")
    _trained(desk, "never", "--checkpoint-every 0")
    assert "last.pt" in files(desk, "o2/saves.seed1072") and "last.pt" not in files(desk, "o2/never.seed1072")


def device(desk: Desk) -> None:
    typed = "train classify --model linear --steps 1 --study d --variant d"
    refused = desk.run("trained", f"{typed} --device cuda:9 --replace")
    assert refused.code in (1, 4), "a device that is not there"
    assert desk.run("trained", f"{typed} --device cpu --replace").code == 0


def threads(desk: Desk) -> None:
    typed = "train classify --model linear --steps 1 --study d --variant"
    for name, given in (("one", ""), ("two", "--threads 2")):
        assert desk.run("trained", f"{typed} {name} {given}").code == 0
    counts = [metadata(desk.folder("trained"), f"d/{name}.seed1072")["options"]["threads"] for name in ("one", "two")]
    assert counts == [1, 2]


def resumed(desk: Desk) -> None:
    """A run that failed half-way goes on with its own options; one that is done is found done."""
    _trained(desk, "done")
    told = desk.run("trained", f"train --resume o2/done.seed1072 {JSON}")
    assert told.code == 0 and told.json["already_done"] is True


def keep_best(desk: Desk) -> None:
    _trained(desk, "three", "--keep-best 3")
    _trained(desk, "single", "--keep-best 1")
    three, single = (len(files(desk, f"o2/{name}.seed1072", "checkpoints/top-*.pt")) for name in ("three", "single"))
    assert three == 3 > single


def again(desk: Desk) -> None:
    first = _trained(desk, "twice")
    second = desk.run("trained", f"{TRAIN} --study o2 --variant twice --again").json
    assert first["run"] != second["run"] and second["already_done"] is False


def replaced(desk: Desk) -> None:
    _trained(desk, "anew")
    assert desk.again("trained", f"{TRAIN} --study o2 --variant anew").json["already_done"] is True
    assert desk.again("trained", f"{TRAIN} --study o2 --variant anew --replace").json["already_done"] is False


def own_recipe(desk: Desk) -> None:
    told = desk.run("trained", f"train ./my_recipe.py --steps 3 {JSON}")
    assert told.code == 0 and told.json["status"] == "completed", told.shortened


def main_choices(typed: str, small: str) -> Check:
    def check(desk: Desk) -> None:
        told = desk.run("trained", f"train {small} {JSON}")
        assert told.code == 0, told.shortened
        saved = metadata(desk.folder("trained"), told.json["run"])["options"]
        words = small.split()[1:]
        for flag, value in zip(words[::2], words[1::2], strict=True):
            assert str(saved[flag.removeprefix("--").replace("-", "_")]).removesuffix(".0") == value.removesuffix(".0")

    return check


def bench() -> list[Item]:
    section, at = "train, bench", "trained"
    base = f"{BENCH} --step-time 0.0005 --max-batches 20"
    return [
        *_options(section, base, at, [
            ("`--warmup-batches`", "--warmup-batches 15", "steps.warmup"),
            ("`--max-batches`", "--max-batches 25", "steps.taken"),
            ("`--run-validation`", "--run-validation --eval-every 2", lambda answer: "evaluat" in str(answer.json["phases"])),
            ("`--enable-resource-monitoring`", "--enable-resource-monitoring", has("resources")),
            ("`--batch-sizes 64,128,256`", "--batch-sizes 1,2", has("batch_sizes")),
        ]),
        point(DOCUMENT, section, "`--enable-profiling` (torch trace)", "`--enable-profiling`", profiled),
        *_options(section, f"bench classify --model linear --no-trials --labels 2000 {JSON}", at, [
            ("`--sample-ratio` (0.01–1.0)", "--sample-ratio 0.9", keys_filled),
            ("`--learning-rates 1e-4,1e-3`", "--learning-rates 1e-4,1e-3", keys_filled),
            ("`--estimate-noise-scale`", "--estimate-noise-scale", keys_filled),
        ]),
        point(DOCUMENT, section, "`--save FILE`, `--baseline FILE`", "the same; exit 3 if slower", baseline),
        field(DOCUMENT, section, "phases", base, "phases", at=at),
        field(DOCUMENT, section, "step time p50/p95/p99 with n", base, step_times, at=at),
        field(DOCUMENT, section, "throughput with an interval", base, "throughput", at=at),
        field(DOCUMENT, section, "memory by kind", base, "memory", at=at),
        point(DOCUMENT, section, "every option of `train`, except those whose role excludes them", "`sync` of the two: PASS",
              in_step),
    ]  # fmt: skip


def has(name: str) -> See:
    return lambda answer: answer.json.get(name) is not None


def keys_filled(answer: Answer) -> list[str]:
    return sorted(name for name, value in answer.json.items() if value not in (None, [], {}))


def step_times(answer: Answer) -> None:
    text = answer.out
    assert all(word in text for word in ('"p50"', '"p95"', '"p99"', '"n"')), text[:800]


def profiled(desk: Desk) -> None:
    told = desk.run("trained", "bench classify --model linear --no-trials --max-batches 12 --labels 500 --enable-profiling "
                               f"--trace-dir traced {JSON}")  # fmt: skip
    assert told.code in (0, 3), told.shortened
    assert list((desk.folder("trained") / "traced").rglob("*.json*"))


def baseline(desk: Desk) -> None:
    """Kept with the commit; compared over processes, and only with what had the same settings."""
    base = f"bench fake --max-batches 80 --no-trials --processes 3 --step-time 0.0005 {JSON}"
    assert desk.run("trained", f"{base} --save kept.json").json["baseline"] is None
    assert "commit" in json.dumps(json.loads((desk.folder("trained") / "kept.json").read_text())), (
        "the commit is not kept"
    )
    told = desk.run("trained", f"{base} --baseline kept.json")
    assert told.code in (0, 3) and told.json["baseline"]["ratio"]["n"] == 3, told.shortened
    assert desk.run("trained", f"{base} --baseline kept.json --batch-size 7").code == 1


def in_step(desk: Desk) -> None:
    excluded = {"study": "a", "variant": "b", "resume": "c", "again": "d", "replace": "e", "secret": "f"}
    given = " ".join(f"--exclude '{name}={reason}'" for name, reason in excluded.items())
    told = desk.run("empty", f"sync 'fairtrial.cli.train:command ppo' 'fairtrial.cli.bench:command ppo' {given}")
    said("Status: PASS")(told)


# launch, runs, doctor.


def launch() -> list[Item]:
    section, at = "launch, runs, doctor", "fake"
    dry = f"launch fake --dry-run --seeds 2 --base-run-name l {JSON}"
    return [
        point(DOCUMENT, section, "`launch STUDY.yaml`", "`launch y.yaml`", from_file),
        option(DOCUMENT, section, "`launch RECIPE --variant name:key=value,key=value`", dry,
               "--variant a: --variant b:effect=0.1,noise=0.01", printed, at=at),
        option(DOCUMENT, section, "`--base-run-name`", dry, "--base-run-name m", printed, at=at),
        option(DOCUMENT, section, "`--seeds 15`", dry, "--seeds 3", printed, at=at, default="15"),
        point(DOCUMENT, section, "`launch command --variant … --metrics FILE -- python train.py --lr {lr} --seed {seed}`", "the same", foreign),
        point(DOCUMENT, section, "a placeholder without a value, a value without a placeholder: errors", "the same",
              placeholders),
        point(DOCUMENT, section, "`--on local|ray|slurm|skypilot`", "`--on PLACE`", places),
        point(DOCUMENT, section, "`--jobs N`", "`--jobs N`", jobs),
        point(DOCUMENT, section, "`--gpus N`", "`--gpus N`: more than there are is refused", no_cards),
        point(DOCUMENT, section, "`--timeout`", "`--timeout SECONDS`", timeout),
        point(DOCUMENT, section, "`--retries`, `--retry-failed`", "the same", retries),
        point(DOCUMENT, section, "`--strict` (refuses a dirty tree)", "`--strict`", strict),
        point(DOCUMENT, section, "`--detach`", "`--detach`, and `runs watch`", detached),
        point(DOCUMENT, section, "`--dry-run` starts nothing", "`--dry-run`", starts_nothing),
        point(DOCUMENT, section, "fills only missing cells", "the same", only_missing),
        field(DOCUMENT, section, "ends with the commands to run next, real names filled in",
              "launch fake --steps 5 --seeds 2 --base-run-name next --variant a: --variant b:effect=0.1",
              said("^  fairtrial analyze next$"), at=at),
        point(DOCUMENT, section, "exit 4: some runs failed", "exit code 4", failed),
        point(DOCUMENT, section, "what cannot work is refused before the first run", "exit code 1 or 2, nothing recorded",
              refused_early),
    ]  # fmt: skip


def from_file(desk: Desk) -> None:
    told = desk.run("fake", f"launch y.yaml {JSON}")
    assert told.code == 0, told.shortened
    assert len(list((desk.folder("fake") / "runs" / "y").glob("*.seed*"))) == 6


PROGRAM = "import sys, json\nlr, seed, out = sys.argv[1:]\nopen(out, 'w').write(json.dumps({'step': 1, 'score': float(lr)}))\n"


def foreign(desk: Desk) -> None:
    (desk.folder("fake") / "theirs.py").write_text(PROGRAM)
    told = desk.run("fake", "launch command --variant base:lr=0.1 --variant new:lr=0.2 --seeds 2 --base-run-name foreign "
                            "--metric score --direction max --metrics '{run_dir}/out.jsonl' --format json -- "
                            f"{sys.executable} theirs.py '{{lr}}' '{{seed}}' '{{run_dir}}/out.jsonl'")  # fmt: skip
    assert told.code == 0, told.shortened
    assert metadata(desk.folder("fake"), "foreign/new.seed1072")["final"]["score"] == 0.2


def placeholders(desk: Desk) -> None:
    for words in (
        "--variant base:lr=0.1 --metrics m.jsonl -- python x.py '{rate}'",
        "--variant base:lr=0.1 -- python x.py",
    ):
        told = desk.run("fake", f"launch command --seeds 1 --dry-run {words}")
        assert told.code in (1, 2), told.shortened


def places(desk: Desk) -> None:
    base = "launch fake --dry-run --seeds 2 --base-run-name places"
    answers = {place: desk.run("fake", f"{base} --on {place}") for place in ("local", "ray", "slurm")}
    assert all(answer.code == 0 for answer in answers.values())
    assert len({answer.out + answer.err for answer in answers.values()}) == 3
    assert desk.run("fake", f"{base} --on moon").code in (1, 2)


def jobs(desk: Desk) -> None:
    """The launcher is opened with that many slots."""
    for number in (1, 3):
        assert (
            desk.run("fake", f"launch fake --steps 5 --seeds 4 --base-run-name jobs{number} --jobs {number}").code == 0
        )
        assert InProcess.opened_with[-1].jobs == number


def no_cards(desk: Desk) -> None:
    told = desk.run("fake", "launch fake --steps 5 --seeds 2 --gpus 99 --base-run-name cards")
    assert told.code in (1, 2) and not (desk.folder("fake") / "runs" / "cards").exists()


def timeout(desk: Desk) -> None:
    """Real processes: a run that sleeps is stopped, and counts as interrupted."""
    told = _in_a_process(
        desk, "launch fake --steps 100000 --step-time 0.01 --seeds 1 --timeout 0.3 --base-run-name late"
    )
    assert told.returncode == 4, told.stderr
    assert metadata(desk.folder("fake"), "late/default.seed1072")["status"] == "interrupted"


def _in_a_process(desk: Desk, typed: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "fairtrial", *typed.split()]
    environment = {**os.environ, "FAIRTRIAL_STORE": str(desk.folder("fake") / "runs")}
    return subprocess.run(argv, cwd=desk.folder("fake"), env=environment, capture_output=True, text=True, check=False)


def retries(desk: Desk) -> None:
    base = f"launch fake --steps 5 --seeds 1 --fail-at 3 --base-run-name fails {JSON}"
    assert desk.run("fake", base).code == 4
    folder = desk.folder("fake")
    log = folder / "runs" / "fails" / "default.seed1072" / "events.jsonl"

    def attempts() -> int:
        return log.read_text().count("run_ended")

    first = attempts()
    assert desk.again("fake", base).code == 4 and attempts() == first, "a failed run is left alone"
    assert desk.run("fake", f"{base} --retry-failed").code == 4 and attempts() > first
    second = attempts()
    assert desk.run("fake", f"{base} --retry-failed --retries 2").code == 4 and attempts() >= second + 2


def strict(desk: Desk) -> None:
    folder = desk.folder("git")
    base = f"launch fake --steps 5 --seeds 1 {JSON} --strict --base-run-name"
    assert desk.again("git", f"{base} clean").code == 0
    (folder / "untracked.py").write_text("x = 1\n")
    try:
        assert desk.again("git", f"{base} dirty").code == 1
    finally:
        (folder / "untracked.py").unlink()


def detached(desk: Desk) -> None:
    told = _in_a_process(desk, "launch fake --steps 5 --seeds 2 --base-run-name left --detach")
    assert told.returncode == 0, told.stderr
    watched = _in_a_process(desk, "runs watch left --format json")
    assert watched.returncode == 0 and '"completed"' in watched.stdout, watched.stdout + watched.stderr


def starts_nothing(desk: Desk) -> None:
    assert desk.run("fake", "launch fake --dry-run --seeds 2 --base-run-name unseen").code == 0
    assert not (desk.folder("fake") / "runs" / "unseen").exists()


def only_missing(desk: Desk) -> None:
    base = "launch fake --steps 5 --base-run-name gaps --seeds"
    assert "3 runs" in desk.run("fake", f"{base} 3").err
    told = desk.run("fake", f"{base} 4").err
    said("4 runs; 3 already recorded")(Answer(0, "", told))


def failed(desk: Desk) -> None:
    assert desk.run("fake", f"launch fake --steps 5 --seeds 1 --fail-at 3 --base-run-name four {JSON}").code == 4


def refused_early(desk: Desk) -> None:
    """A best metric that the recipe cannot give, and an environment whose spaces ppo cannot take."""
    for number, words in enumerate(("fake --best-metric eval_nothing", "ppo --best-metric eval_accuracy")):
        told = desk.run("fake", f"launch {words} --steps 2 --seeds 1 --base-run-name early{number}")
        assert told.code in (1, 2), told.shortened
        assert not list((desk.folder("fake") / "runs").glob(f"early{number}/*.seed*"))


def runs_and_doctor() -> list[Item]:
    section, at = "launch, runs, doctor", "fake"
    return [
        option(DOCUMENT, section, "`runs list`", f"runs list --study s {JSON}", "--variant base", printed, at=at),
        option(DOCUMENT, section, "`runs show`", "runs show s/base.seed1072", "--lines 0 --format json", printed, at=at),
        option(DOCUMENT, section, "`runs tail`", "runs tail s/base.seed1072", "--lines 1", printed, at=at),
        option(DOCUMENT, section, "`runs export`", "runs export s/base.seed1072", "--metric train_loss", printed, at=at),
        point(DOCUMENT, section, "`runs watch`", "`runs watch STUDY --once`", watched),
        point(DOCUMENT, section, "`runs sql`", '`runs sql "select …"`', sql),
        point(DOCUMENT, section, "`runs rm`", "`runs rm RUN --yes`", removed),
        field(DOCUMENT, section, "`doctor`: what is installed, what this machine can measure", f"doctor {JSON}", "checks.0.name",
              at=at),
        option(DOCUMENT, section, "`doctor --aa`: its noise floor", f"doctor {JSON}", "--aa", keys_filled, at=at, code=None),
    ]  # fmt: skip


def watched(desk: Desk) -> None:
    assert desk.run("fake", "launch fake --steps 5 --seeds 2 --base-run-name seen").code == 0
    told = desk.run("fake", "runs watch seen --once --format json")
    assert told.code == 0 and told.json["schema"] == 1


def sql(desk: Desk) -> None:
    told = desk.run("fake", """runs sql "select variant, count(*) as n from runs where study = 's' group by variant" """
                            "--format csv")  # fmt: skip
    rows = list(csv.DictReader(io.StringIO(told.out)))
    assert {row["variant"]: row["n"] for row in rows} == {"base": "6", "new": "6", "third": "6"}


def removed(desk: Desk) -> None:
    assert desk.run("fake", "launch fake --steps 5 --seeds 2 --base-run-name gone").code == 0
    assert desk.run("fake", "runs rm gone/default.seed1072").code != 0, "without a terminal it needs --yes"
    assert desk.run("fake", "runs rm gone/default.seed1072 --yes").code == 0
    assert not (desk.folder("fake") / "runs" / "gone" / "default.seed1072").exists()


# temperature, alpha, sweep; compare, ablation.


def sweeps() -> list[Item]:
    section = "temperature, alpha, sweep"
    base = f"{TEMPERATURE} {JSON}"
    return [
        *fields(DOCUMENT, section, base, ["schema", "results.0.ci", "results.0.runs", "best.confirmed", "best.set",
                                          "best_temperature"], at="lab"),
        *fields(DOCUMENT, section, SWEEP, ["param", "results.0.value", "best"], at="fake"),
        *_options(section, SWEEP, "fake", [
            ("`--param NAME=START:END:STEP`", "--param effect=0:0.2:0.1", printed),
            ("`--param NAME=log:LOW:HIGH:N`", "--param noise=log:1e-3:1e-1:3", printed),
            ("`--metric`", "--metric train_loss", "metric"),
        ]),
        option(DOCUMENT, section, "`--zip`", f"{SWEEP} --param noise=0.01,0.02", "--zip", "results.#", at="fake"),
        option(DOCUMENT, section, "every other recipe option is a fixed setting", base, "--learning-rate 0.1",
               "results.0.accuracy", at="lab"),
        option(DOCUMENT, section, "`--confirm N`", SWEEP, "--confirm 2", "best.confirmed", at="fake"),
        option(DOCUMENT, section, "`--baseline VALUE`", f"{SWEEP} --confirm 2", "--baseline 0.1", "confirmation", at="fake"),
        point(DOCUMENT, section, "`--no-stack`", "`--no-stack`: the same numbers, other hours", unstacked),
        point(DOCUMENT, section, "`--jobs`", "`--jobs N`", jobs_of_sweeps),
        point(DOCUMENT, section, "`alpha_sweep`, `sweep`, results have `.best_param`", "the same", sweep_in_python),
    ]  # fmt: skip


def unstacked(desk: Desk) -> None:
    stacked, alone = (
        desk.run("lab", f"{TEMPERATURE} {JSON} --study st"),
        desk.run("lab", f"{TEMPERATURE} {JSON} --no-stack --study al"),
    )
    assert [row["accuracy"] for row in stacked.json["results"]] == [row["accuracy"] for row in alone.json["results"]]
    shown = [desk.run("lab", f"runs show {name}/temperature=1.0.seed1072").out for name in ("st", "al")]
    assert "trained together" in shown[0] and "trained together" not in shown[1]


def jobs_of_sweeps(desk: Desk) -> None:
    for number in (1, 3):
        assert desk.run("fake", f"{SWEEP} --study swept{number} --label {number} --jobs {number}").code == 0
        assert InProcess.opened_with[-1].jobs == number


def sweep_in_python(desk: Desk) -> None:
    import fairtrial

    terms = fairtrial.LabConfig(runs=2, store=desk.folder("fake") / "runs")
    found = fairtrial.sweep("fake", ["effect=0.0,0.1"], options={"steps": 5}, terms=terms)
    assert found.best_param == look(desk.run("fake", SWEEP), "best.value")
    assert callable(fairtrial.alpha_sweep)


def lab() -> list[Item]:
    section, compare, ablation = "compare, ablation", f"{COMPARE} {JSON}", f"{ABLATION} {JSON}"
    removed = lambda answer: [row["removed"] for row in answer.json["rows"]]  # noqa: E731
    return [
        *fields(DOCUMENT, section, compare, [f"strategies.0.{key}" for key in
                ("name", "accuracy", "loss", "time_s", "memory_gb", "ci", "runs")] + ["significant"], at="lab"),
        point(DOCUMENT, section, "the baseline `none` is always there", "the same", none_is_there),
        point(DOCUMENT, section, "`--compute-matched`", "`--compute-matched`", matched_by_time),
        point(DOCUMENT, section, "**attention** is an error on a model without maps, naming those that have them", "the same",
              no_maps),
        *fields(DOCUMENT, section, ablation, ["baseline", "rows.0.removed", "rows.0.accuracy", "rows.0.delta", "rows.0.ci",
                                              "interactions"], at="lab"),
        *(option(DOCUMENT, section, f"`{given.split()[0]}`", ablation, given, removed, at="lab")
          for given in ("--also temperature+attention_loss", "--all-pairs", "--factorial")),
    ]  # fmt: skip


def matched_by_time(desk: Desk) -> None:
    """A strategy that takes twice as long gets a baseline of twice the steps; no stopwatch decides the test."""
    seconds = {"none": 1.0, "kd": 2.0, "none-matched": 2.0}
    typed = f"compare --strategies kd --runs 2 {CNN} {JSON} --study matched"
    with mock.patch.object(compare_module, "_time", lambda runs: seconds[runs[0].variant]):
        found = [{row["name"] for row in desk.run("lab", each).json["strategies"]}
                 for each in (typed, f"{typed} --compute-matched")]  # fmt: skip
    assert found == [{"none", "kd"}, {"none", "kd", "none-matched"}]
    assert metadata(desk.folder("lab"), "matched/none-matched.seed1072")["options"]["steps"] == 20


def none_is_there(desk: Desk) -> None:
    assert "none" in {row["name"] for row in desk.run("lab", f"{COMPARE} {JSON}").json["strategies"]}


def no_maps(desk: Desk) -> None:
    told = desk.run("lab", f"compare --strategies attention --runs 2 {SMALL} --student mlp")
    assert told.code == 1 and "cnn" in told.err


# cost-performance, recommend.


def choosing() -> list[Item]:
    section, base, at = "cost-performance, recommend", f"{COST} {JSON}", "choice"
    recommend = f"{RECOMMEND} {JSON}"
    losses = f"cost-performance --configs losses.yaml {JSON}"
    return [
        *fields(DOCUMENT, section, base, ["gpu", *(f"points.0.{key}" for key in ("name", "hours", "cost", "accuracy", "memory",
                "pareto", "dominated_by", "frontier_probability")), "frontier", "efficiency_winner", "marginal"], at=at),
        option(DOCUMENT, section, "`--metric NAME:max|min`", losses, "--metric loss:min", "frontier", at=at),
        option(DOCUMENT, section, "`--prices FILE`, dated", base, "--prices prices.yaml", "points.0.cost", at=at),
        *fields(DOCUMENT, section, recommend, ["recommended.name", "expected", "rationale", "alternatives", "binding"], at=at),
        *(option(DOCUMENT, section, f"`--objective {name}`", recommend, f"--objective {name}", "recommended.name", at=at)
          for name in ("cost", "time", "value")),
        option(DOCUMENT, section, "`--confidence P`", f"recommend --configs seeded.yaml --min-accuracy 0.865 {JSON}",
               "--confidence 0.99", lambda answer: (answer.code, answer.out), at=at, code=None),
        point(DOCUMENT, section, "no feasible point: exit 3, the smallest relaxation is named", "the same", infeasible),
        point(DOCUMENT, section, "two binding constraints: the smallest joint relaxation", "the same", jointly),
        point(DOCUMENT, section, "a study of the store", "`cost-performance STUDY`", priced_study),
        point(DOCUMENT, section, "`CostModel.a100_80gb()`, `pareto_frontier`, `recommend`", "the same", pareto_in_python),
    ]  # fmt: skip


def infeasible(desk: Desk) -> None:
    told = desk.run("choice", f"{RECOMMEND} --min-accuracy 0.99")
    assert told.code == 3
    said(r"0\.882")(told)


def jointly(desk: Desk) -> None:
    """Nothing costs at most $5 and reaches 0.88; loosening both a little less than either alone would need is named."""
    told = desk.run("choice", f"{RECOMMEND} --max-cost 5 --min-accuracy 0.88 {JSON}")
    assert told.code == 3
    assert "joint" in told.out, "no joint relaxation is named"


def priced_study(desk: Desk) -> None:
    told = desk.run("fake", f"cost-performance s --gpu t4 --device t4 {JSON}")
    assert told.code == 0 and {row["name"] for row in told.json["points"]} == {"base", "new", "third"}, told.shortened


def pareto_in_python(desk: Desk) -> None:
    import fairtrial

    points = [fairtrial.CostPoint("a", 1, 0.8, memory=1), fairtrial.CostPoint("b", 2, 0.7, memory=1)]
    analysis = fairtrial.CostPerformanceAnalysis(fairtrial.CostModel.a100_80gb())
    assert [each.point.name for each in analysis.pareto_frontier(points)] == ["a"]


# variance, analyze, power.


def variance() -> list[Item]:
    section, base, at = "variance, analyze, power", f"variance s:base {JSON}", "fake"
    return [
        *fields(
            DOCUMENT,
            section,
            base,
            ["metric", "threshold", "auc.n_min", "auc.n_range", "auc.curve", "derivative.n_min"],
            at=at,
        ),
        option(DOCUMENT, section, "`--threshold-abs X`", base, "--threshold-abs 0.001", "auc.n_min", at=at),
        option(DOCUMENT, section, "`--metric eval_accuracy`", base, "--metric train_loss", "metric", at=at),
    ]


def analyze() -> list[Item]:
    section, at = "variance, analyze, power", "fake"
    effect = "comparisons.0.effect"
    slope = f"{ANALYZE} --metric eval_accuracy"
    return [
        option(DOCUMENT, section, "`analyze STUDY --control A --candidate B`", f"analyze s {JSON}",
               "--control base --candidate third", "comparisons.#", at=at, becomes=1),
        *_options(section, ANALYZE, at, [
            ("`--metric`", "--metric train_loss", "metric"),
            ("`--bootstrap.n_resamples 10000`", "--bootstrap.n_resamples 300", "comparisons.0.bootstrap"),
            ("`--bootstrap.method bca`", "--bootstrap.method bca", "comparisons.0.bootstrap"),
            ("`--bootstrap.method percentile`", "--bootstrap.method percentile", "comparisons.0.bootstrap"),
            ("`--bootstrap.method studentized`", "--bootstrap.method studentized", effect),
            ("`--alpha 0.05`", "--alpha 0.01", effect),
            ("`--side greater`", "--side greater", effect),
            ("`--side less`", "--side less", effect),
            ("`--sesoi`", "--sesoi 0.01", "comparisons.0.exceeds_sesoi"),
            ("`--require VERDICT`", "--require equivalent --sesoi 0.001", lambda answer: answer.code),
            ("`--unpaired`", "--unpaired", effect),
            ("`--method`", "--method wilcoxon", "comparisons.0.method"),
            ("`--ttest.enabled`", "--method sign-flip --ttest.enabled", "comparisons.0.tests"),
            ("`--power.enabled`", "--power.enabled", "power"),
            ("`--certify`", "--certify", "certificate"),
            ("`--since RUN`", "--since s/third.seed1072", lambda answer: (answer.code, answer.out)),
        ]),
        *_options(section, slope, at, [
            (f"`--summary.type {kind}`", f"--summary.type {kind}{more}", effect)
            for kind, more in (("auc", ""), ("best", ""), ("slope", ""), ("time_to", " --summary.threshold 0.4"))
        ]),
        option(DOCUMENT, section, "`--summary.type last`", f"{slope} --summary.type auc", "--summary.type last", effect, at=at),
        option(DOCUMENT, section, "`--from results.csv`, columns named by options", FROM, "--task-column absent", printed, at=at,
               code=None),
        option(DOCUMENT, section, "`--tasks`", f"{FROM} --task-column task", "--tasks", printed, at=at, code=None),
        point(DOCUMENT, section, "`--plan REGISTRATION`", "`--plan FILE`", by_plan),
        point(DOCUMENT, section, "`--output.csv_path`", "`--output.csv_path FILE`", numbers),
        point(DOCUMENT, section, "`--plots DIR`: learning curves, paired differences, distribution", "`--plots DIR`", charts),
    ]  # fmt: skip


def by_plan(desk: Desk) -> None:
    from tests.documents.pipeline import registered

    registered(desk)


def numbers(desk: Desk) -> None:
    assert desk.run("fake", f"{ANALYZE} --output.csv_path numbers.csv").code == 0
    rows = list(csv.DictReader(io.StringIO((desk.folder("fake") / "numbers.csv").read_text())))
    assert len(rows) == 12 and set(rows[0]) == {"variant", "seed", "metric", "value"}


def charts(desk: Desk) -> None:
    assert desk.run("fake", f"{ANALYZE} --plots drawn").code == 0
    names = sorted(path.name for path in (desk.folder("fake") / "drawn").iterdir())
    assert len(names) >= 3, names
    assert any("curve" in name for name in names), f"no learning curves by default: {names}"


def power() -> list[Item]:
    section, at = "variance, analyze, power", "fake"
    pilot = f"power --sesoi 0.01 --pilot 's/base.*' {JSON}"
    return [
        *_options(section, POWER, at, [
            ("`power --sesoi X`", "--sesoi 0.02", "seeds"),
            ("`--sd S`", "--sd 0.04", "seeds"),
            ("`--design paired|unpaired`", "--design paired", "design"),
            ("`--correlation R`", "--design paired --correlation 0.5", "seeds"),
            ("`--alpha`", "--alpha 0.01", "seeds"),
            ("`--power`", "--power 0.95", "seeds"),
            ("`--hours-per-run H`", "--hours-per-run 2", "hours"),
        ]),
        option(DOCUMENT, section, "`--gpu G`", f"{POWER} --hours-per-run 2", "--gpu t4", "cost", at=at),
        point(DOCUMENT, section, "`--pilot RUN…`", "`--pilot RUN`", piloted),
        option(DOCUMENT, section, "`--assurance 0.8`", pilot, "--assurance 0.8", "seeds", at=at),
    ]  # fmt: skip


def piloted(desk: Desk) -> None:
    quiet, noisy = (
        desk.run("fake", f"power --sesoi 0.01 --pilot '{name}' {JSON}").json for name in ("s/base.*", "s:new")
    )
    assert quiet["sd"] != noisy["sd"] and quiet["pilot_n"] == noisy["pilot_n"] == 6


# evaluate; scripts; verbs.


def evaluate() -> list[Item]:
    section = "evaluate, best checkpoint, normalization"
    return [
        point(DOCUMENT, section, "`--checkpoint best|last|step-N`", "the same", other_checkpoint),
        point(DOCUMENT, section, "`--episodes N`", "`--episodes N`", episodes),
        point(DOCUMENT, section, "`--confirm`", "`--confirm`", confirmed),
        *(point(DOCUMENT, section, f"JSON key `{key}`", f"`{key}`", evaluated_key(key))
          for key in ("run", "checkpoint", "metrics.eval_return_mean")),
        point(DOCUMENT, section, "the mapping is strict", "unknown keys are errors", strict_mapping),
        point(DOCUMENT, section, "flag and mapping given differently: an error", "the same", one_option),
        point(DOCUMENT, section, "57 Atari games built in", "the same; `ppo --env ALE/Pong-v5` uses them", atari),
    ]  # fmt: skip


PLAYED = (f"train ppo --steps 2 --eval-every 1 --checkpoint-every 1 --eval-episodes 2 --report-episodes 2 --study e "
          f"--variant e {JSON}")  # fmt: skip


def _evaluated(desk: Desk, given: str = "") -> Any:
    assert desk.run("trained", PLAYED).code == 0
    told = desk.run("trained", f"evaluate e/e.seed1072 {JSON} {given}")
    assert told.code == 0, told.shortened
    return told.json


def other_checkpoint(desk: Desk) -> None:
    steps = [_evaluated(desk, f"--checkpoint {name}")["step"] for name in ("last", "step-1")]
    assert steps == [2, 1] and _evaluated(desk, "--checkpoint best")["checkpoint"] == "best"


def episodes(desk: Desk) -> None:
    assert _evaluated(desk, "--episodes 3")["episodes"] == 3 != _evaluated(desk)["episodes"]


def confirmed(desk: Desk) -> None:
    assert _evaluated(desk)["gap"] is None and _evaluated(desk, "--confirm")["fresh"] is True


def evaluated_key(key: str) -> Check:
    def check(desk: Desk) -> None:
        look(Answer(0, json.dumps(_evaluated(desk)), ""), key)

    return check


def strict_mapping(desk: Desk) -> None:
    told = desk.run("trained", f"{TRAIN} --benchmark human=1")
    assert told.code in (1, 2) and "human_score" in told.err + told.out


def one_option(desk: Desk) -> None:
    told = desk.run("trained", f"{TRAIN} --best-metric eval_accuracy --benchmark best_metric=train_loss --study oo")
    assert told.code in (1, 2), told.shortened


def atari(desk: Desk) -> None:
    assert len(ATARI) == 57 and ATARI["Pong"] == (-20.7, 14.6)


def script() -> list[Item]:
    section = "launch, runs, doctor"
    return [
        point(DOCUMENT, section, "`with fairtrial.run(...) as run: run.log(step, loss=…)`", "the same", logged),
        point(
            DOCUMENT,
            section,
            "`run.evaluated(step, metrics)`, `run.save(step, state)`, `run.resume()`",
            "the same",
            script_resumes,
        ),
    ]


def logged(desk: Desk) -> None:
    import fairtrial

    with fairtrial.run(seed=3, study="script", variant="log", store=desk.folder("fake") / "runs") as run:
        run.log(1, loss=0.5)
    assert "0.5" in desk.run("fake", "runs export script/log.seed3").out


def script_resumes(desk: Desk) -> None:
    import fairtrial

    settings: dict[str, Any] = {
        "seed": 3, "study": "script", "variant": "best", "best_metric": "eval_accuracy",
        "store": desk.folder("fake") / "runs",
    }  # fmt: skip
    with fairtrial.run(**settings) as run:
        assert run.resume() is None
        run.evaluated(1, {"eval_accuracy": 0.5}, {"weights": [1.0]}, save=True)
        run.save(2, {"weights": [2.0]})
        found = run.resume()
        assert found is not None and found.step == 2
    assert (desk.folder("fake") / "runs" / "script" / "best.seed3" / "checkpoints" / "best.pt").is_file()


def verbs() -> list[Item]:
    """Every CLI verb has a Python function of the same name, with the documented exceptions."""
    names = ("train", "bench", "sync", "launch", "evaluate", "temperature", "alpha", "sweep", "compare_strategies", "ablation",
             "variance", "analyze", "power", "cost_performance", "recommend", "profile", "write_study", "doctor")  # fmt: skip
    return [
        point(DOCUMENT, "Commands", f"`fairtrial.{name}`", f"`fairtrial.{name}`", callable_from(name)) for name in names
    ]


def callable_from(name: str) -> Check:
    def check(desk: Desk) -> None:
        import fairtrial

        assert callable(getattr(fairtrial, name))

    return check
