"""Document 004: launch many seeds, look at the variance, compare two arms; and the protocol around it."""

from __future__ import annotations

from typing import Any

from fairtrial.core.specs import FIXED_SEEDS
from tests.documents.desk import Desk
from tests.documents.places import commit, metadata
from tests.documents.records import Item, See, field, line, look, option, point, said

DOCUMENT = "004"
AT = "pipeline"
SMALL = "--steps 2 --eval-every 0 --eval-episodes 1 --report-episodes 1 --envs 2 --rollout 4 --epochs 1 --seeds 2"
FIFTEEN = " ".join(f"run{number}" for number in range(1, 16))
VARIANCE = f"variance {FIFTEEN} --metric overview/reward"
PAIR_1 = '\'{"control": "control_run1", "candidate": "treatment_run1"}\''
PAIR_2 = '\'{"control": "control_run2", "candidate": "treatment_run2"}\''
PAIRS = f"analyze --pairs {PAIR_1} {PAIR_2} --metric overview/reward"
UNPAIRED = "analyze --control-run-ids run1 run2 run3 --candidate-run-ids run4 run5 run6 --metric overview/reward"
TWO_ARMS = "analyze --control-run-ids run1 run2 run3 run4 --candidate-run-ids run16 run17 run18 run19"
THEIRS = "their architectures are not ours: vit_reset is mlp (or gru), trxl is transformer, terrain_2 is widening"
JSON = "--format json"


def items() -> list[Item]:
    return [*quick_start(), *protocol(), *intervention(), *launcher(), *variance(), *analysis(), *practices()]


def quick_start() -> list[Item]:
    launch = "launch ppo --architecture mlp --curriculum widening"
    dots = ("the dots stand for run names; here the runs are named in full",)
    return [
        line(DOCUMENT, "Quick Start", "./run_icl_benchmark.sh --architecture vit_reset --curriculum terrain_2", launch, at=AT,
             add=f"{SMALL} --base-run-name quick", says=["report_return_mean", "fairtrial runs show"], differs=THEIRS),
        line(DOCUMENT, "Quick Start",
             "python variance.py run1 run2 run3 ... run15 --metric overview/reward --threshold 0.05 --output variance_plot.png",
             f"{VARIANCE} --threshold 0.05 --output variance_plot.png", at=AT, files=["variance_plot.png"], differs=dots[0]),
        line(DOCUMENT, "Quick Start",
             "python analysis.py --control-run-ids run1 run2 ... --candidate-run-ids run16 run17 ...",
             f"{TWO_ARMS}", at=AT, says=["is better than|better"], differs=dots[0]),
    ]  # fmt: skip


def protocol() -> list[Item]:
    section = "Baseline Control Protocol"
    return [
        line(DOCUMENT, section, "git rev-parse HEAD > benchmark_git_hash.txt",
             "train fake --steps 5 --study hash --variant v --format json", at="git", keys=["run"],
             differs="every run records its commit by itself, and whether the tree was dirty"),
        point(DOCUMENT, section, "the exact codebase version", "`environment.git_commit` of metadata.json", recorded),
        line(DOCUMENT, section, "git diff <last-benchmark-commit> -- metta/rl/", "doctor --since HEAD --paths src/", at="git",
             differs="`doctor --since COMMIT --paths src/` and `launch --since-benchmark STUDY` show `git diff --stat`"),
        point(DOCUMENT, section, "diff of the trainer since the last benchmark", "`launch --since-benchmark STUDY`", since),
        point(DOCUMENT, section, "hyperparameter sweep, documented", "`fairtrial sweep ppo --param …`", swept),
        line(DOCUMENT, section, "./run_icl_benchmark.sh --architecture vit_reset --base-run-name pilot_baseline",
             "launch ppo --architecture mlp --base-run-name pilot_baseline", at=AT, add=SMALL, says=["^pilot_baseline"],
             differs=THEIRS),
        line(DOCUMENT, section, "python variance.py <15-run-ids> --threshold 0.05", f"variance {FIFTEEN} --threshold 0.05",
             at=AT, says=[r"n = 15 is enough|run \d+ more seeds"]),
        point(DOCUMENT, section, "if variance > 5 % at N=15, run more seeds", "`run k more seeds:` and the command", more_seeds,
              differs="the rule is about the interval of the mean: the change of the CV answers 4 or 5 whatever the noise"),
    ]  # fmt: skip


def recorded(desk: Desk) -> None:
    desk.run("git", "train fake --steps 5 --study hash --variant v --format json")
    found = metadata(desk.folder("git"), "hash/v.seed1072")["environment"]
    assert len(found["git_commit"]) == 40 and found["git_dirty"] is False


def since(desk: Desk) -> None:
    """A trainer that was changed after the last study is shown, in launch and in doctor."""
    base = desk.run("git", "launch fake --steps 5 --seeds 2 --base-run-name before")
    assert base.code == 0, base.shortened
    folder = desk.folder("git")
    before = metadata(folder, "before/default.seed1072")["environment"]["git_commit"]
    (folder / "src" / "trainer.py").write_text("RATE = 0.2\n")
    commit(folder, "faster")
    told = desk.run("git", "launch fake --steps 5 --seeds 2 --base-run-name after --since-benchmark before")
    assert told.code == 0, told.shortened
    said(r"src/trainer\.py +\| ")(told)
    said(r"src/trainer\.py +\| ")(desk.run("git", f"doctor --since {before}"))
    said(r"src/trainer\.py +\| ")(desk.run("git", f"doctor --since {before} --paths src/"))
    elsewhere = desk.run("git", f"doctor --since {before} --paths .gitignore")
    assert "trainer.py" not in elsewhere.out + elsewhere.err, "--paths looks elsewhere"


def swept(desk: Desk) -> None:
    told = desk.run(AT, f"sweep ppo --param learning_rate=0.001,0.01 {SMALL.replace('--seeds 2', '--runs 2')} {JSON}")
    assert told.code == 0 and told.json["best"], told.shortened


def more_seeds(desk: Desk) -> None:
    told = desk.run(AT, f"{VARIANCE} --threshold 0.02")
    said(r"(?i)run [\d,]+ more seeds")(told)


def intervention() -> list[Item]:
    section = "Benchmarking a New Intervention"
    tail = "--metric overview/reward --summary.type auc --bootstrap.n_resamples 10000 --output.csv_path results.csv"
    pairs = f"analyze --pairs {PAIR_1} {PAIR_2} {tail}"
    small = f"{SMALL} --width 8"
    return [
        point(DOCUMENT, section, "align the parameter count with the baseline", "`--parameters N`, and the fairness caution",
              capacity),
        line(DOCUMENT, section, "./run_icl_benchmark.sh --architecture vit_reset --curriculum terrain_2 --base-run-name "
             "control_vit_reset_20250105",
             "launch ppo --architecture mlp --curriculum widening --base-run-name control_vit_reset_20250105", at=AT,
             add=small, says=["^control_vit_reset_20250105"], differs=THEIRS),
        line(DOCUMENT, section, "./run_icl_benchmark.sh --architecture trxl --curriculum terrain_2 --base-run-name "
             "treatment_trxl_20250105",
             "launch ppo --architecture transformer --curriculum widening --base-run-name treatment_trxl_20250105", at=AT,
             add=small, says=["^treatment_trxl_20250105"], differs=THEIRS),
        point(DOCUMENT, section, "the same seeds for control and treatment", "the fixed list of seeds", same_seeds),
        line(DOCUMENT, section, f"python analysis.py --pairs {PAIR_1} {PAIR_2} {tail}", pairs, at=AT,
             files=["results.csv"], says=["bootstrap"]),
        point(DOCUMENT, section, "does the CI exclude 0?", "the verdict, and both intervals in JSON", excludes_zero),
        point(DOCUMENT, section, "radial plots", "`radial_profile` of `--plots DIR`, from three metrics on", plots,
              differs="a panel per metric with its own scale and intervals: spokes that begin at zero hide differences"),
    ]  # fmt: skip


def capacity(desk: Desk) -> None:
    small = f"{SMALL} --seeds 1 {JSON}"
    names = ("wide", "narrow")
    for name, number in zip(names, (4000, 400), strict=True):
        assert desk.run(AT, f"launch ppo --parameters {number} --base-run-name {name} {small}").code == 0
    counts = [metadata(desk.folder(AT), f"{name}/default.seed1072")["resources"]["parameters"] for name in names]
    assert counts[0] > 5 * counts[1]


def same_seeds(desk: Desk) -> None:
    planned = desk.run(AT, "launch ppo --dry-run").out
    assert [int(each.split("--seed ")[1].split()[0]) for each in planned.splitlines()] == list(FIXED_SEEDS)


def excludes_zero(desk: Desk) -> None:
    found = desk.run(AT, f"{TWO_ARMS} --bootstrap.n_resamples 1000 {JSON}").json["comparisons"][0]
    assert found["effect"]["low"] > 0 and found["bootstrap"]["low"] > 0 and found["verdict"] == "better"


def plots(desk: Desk) -> None:
    """Learning curves, paired differences, bootstrap distribution and normality; radial with three metrics."""
    typed = (
        "analyze s --control base --candidate new --metric report_accuracy --metric eval_accuracy --metric train_loss"
    )
    assert desk.run("fake", f"{typed} --direction max --bootstrap.n_resamples 200 --plots charts").code == 0
    names = " ".join(sorted(path.name for path in (desk.folder("fake") / "charts").iterdir()))
    for word in ("curve", "difference", "radial", "bootstrap", "normal"):
        assert word in names, f"no chart of '{word}' among: {names}"


def launcher() -> list[Item]:
    section = "run_icl_benchmark.sh"
    theirs = "./run_icl_benchmark.sh"
    return [
        line(DOCUMENT, section, f"{theirs} [OPTIONS]", "launch ppo --help", at=AT, says=["--architecture", "--curriculum",
             "--base-run-name", "--skypilot", "--gpus", "--dry-run", "--help"]),
        line(DOCUMENT, f"{section}, examples", f"{theirs} --architecture vit_reset --curriculum terrain_2",
             "launch ppo --architecture mlp --curriculum widening --base-run-name local", at=AT, add=SMALL,
             says=["^local"], differs=THEIRS),
        line(DOCUMENT, section, f"{theirs} --architecture trxl --skypilot --gpus 8",
             "launch ppo --architecture transformer --skypilot --gpus 8 --dry-run", at=AT, add="--seeds 2",
             says=["accelerators|gpus|8"], differs="a dry run: no cloud is rented by a test; " + THEIRS),
        line(DOCUMENT, section, f"{theirs} --dry-run", "launch ppo --dry-run", at=AT, says=["^fairtrial train ppo --seed 1072",
             "^fairtrial train ppo --seed 15866"]),
        option(DOCUMENT, section, "`--architecture <arch>` (default: vit_reset)", "launch ppo --dry-run --base-run-name d",
               "--architecture transformer", lambda answer: answer.out.splitlines()[0], at=AT,
               differs="the default is mlp"),
        option(DOCUMENT, section, "`--curriculum <style>` (default: terrain_2)", "launch ppo --dry-run --base-run-name d",
               "--curriculum widening", lambda answer: answer.out.splitlines()[0], at=AT, differs="the default is fixed"),
        option(DOCUMENT, section, "`--base-run-name <name>` (auto-generated)", "launch ppo --dry-run",
               "--base-run-name mine", said(r"--study (\S+)"), at=AT, becomes="mine"),
        option(DOCUMENT, section, "`--skypilot` (default: local)", "launch ppo --dry-run --seeds 2", "--skypilot",
               lambda answer: "sky" in answer.out + answer.err, at=AT, becomes=True),
        point(DOCUMENT, section, "`--gpus <n>` (default: 4)", "`--gpus N`", cards,
              differs="4 for a program of yours; the built-in recipes train on the CPU and get none unless asked"),
        option(DOCUMENT, section, "`--dry-run`", f"launch fake --steps 5 --seeds 2 --base-run-name dry {JSON}", "--dry-run",
               lambda answer: answer.out, at=AT),
        point(DOCUMENT, section, "`--help`", "`--help`", helped),
        point(DOCUMENT, section, "launches 15 training runs", "`--seeds 15` is the default", fifteen),
        field(DOCUMENT, section, "what it will take is said before the first run",
              f"launch ppo {SMALL} --base-run-name estimate", said(r"(?i)frames"), at=AT,
              ours="frames, the time they are estimated to take, and the flag that shortens it"),
    ]  # fmt: skip


def cards(desk: Desk) -> None:
    program = "launch command --variant a:lr=0.1 --seeds 1 --skypilot --dry-run --base-run-name cards {} -- python x.py '{{lr}}'"
    said(r"L4:4\b")(desk.run(AT, program.format("")))
    said(r"L4:8\b")(desk.run(AT, program.format("--gpus 8")))
    said(r"L4:8\b")(desk.run(AT, "launch ppo --skypilot --dry-run --seeds 1 --gpus 8"))


def helped(desk: Desk) -> None:
    assert desk.run(AT, "launch ppo --help").out.startswith("Usage: ")


def fifteen(desk: Desk) -> None:
    assert len(desk.run(AT, "launch ppo --dry-run").out.splitlines()) == 15


def variance() -> list[Item]:
    section, base = "variance.py", f"{VARIANCE} {JSON}"
    line_15 = f"variance.py {FIFTEEN} --metric overview/reward --threshold 0.05 --output icl_variance_analysis.png"
    return [
        line(DOCUMENT, section, "python variance.py run_id_1 run_id_2 ... run_id_15 [OPTIONS]", "variance --help", at=AT,
             says=["--metric", "--threshold", "--output"]),
        line(DOCUMENT, section, f"python {line_15}", line_15.replace(".py", "", 1), at=AT,
             files=["icl_variance_analysis.png"]),
        option(DOCUMENT, section, "`--metric <key>` (default: overview/reward)", f"variance 's/base.*' {JSON}",
               "--metric train_loss", "metric", at="fake", differs="the default is the metric that the run is judged by"),
        option(DOCUMENT, section, "`--threshold <float>` (default: 0.05)", base, "--threshold 0.01", "auc.n_min", at=AT,
               default="0.05"),
        point(DOCUMENT, section, "`--output <path>` (default: variance_analysis.png)", "`--output variance_analysis.png`",
              drawn, differs="without --output nothing is drawn: a file nobody asked for is a surprise"),
        field(DOCUMENT, section, "minimum N for AUC", base, "auc.n_min", at=AT),
        field(DOCUMENT, section, "minimum N for Derivative", base, "derivative.n_min", at=AT),
        field(DOCUMENT, section, "console output", VARIANCE, said(r"n = 15 is enough|run \d+ more seeds"), at=AT),
        field(DOCUMENT, section, "variance against sample size", base, "auc.curve.0", at=AT),
    ]  # fmt: skip


def drawn(desk: Desk) -> None:
    assert desk.run(AT, f"{VARIANCE} --output variance_analysis.png").code == 0
    assert (desk.folder(AT) / "variance_analysis.png").read_bytes().startswith(b"\x89PNG")


def analysis() -> list[Item]:
    section = "analysis.py"
    listed = """'[{"control": "run1", "candidate": "run16", "seed": 1072}, {"control": "run2", "candidate": "run17", "seed": 2043}]'"""
    base = f"{TWO_ARMS} --metric overview/reward {JSON}"

    def of(theirs: str, given: str, see: See, **more: Any) -> Item:
        return option(DOCUMENT, section, theirs, base, given, see, at=AT, **more)

    return [
        line(DOCUMENT, section, """python analysis.py --pairs '[{"control": "run1", "candidate": "run2", "seed": 1072}, ...]' """
             "--metric overview/reward", f"analyze --pairs {listed} --metric overview/reward", at=AT, says=["2 pairs"],
             differs="the dots stand for further pairs; here both are written out"),
        line(DOCUMENT, section, f"python analysis.py {UNPAIRED.removeprefix('analyze ')}", UNPAIRED, at=AT,
             says=["overview/reward"]),
        point(DOCUMENT, section, "`--pairs '{…}' '{…}'`, and `--pairs` repeated", "both", both_spellings),
        point(DOCUMENT, section, "`--control-run-ids a b c`, and the flag repeated", "both", both_run_ids),
        option(DOCUMENT, section, "`--metric <key>`", "analyze s --format json", "--metric train_loss", "metric", at="fake",
               becomes="train_loss"),
        of("`--summary.type auc`", "--summary.type auc", "comparisons.0.effect.value"),
        of("`--bootstrap.n_resamples 10000`", "--bootstrap.n_resamples 500", "comparisons.0.bootstrap"),
        point(DOCUMENT, section, "`--output.csv_path results.csv`", "`--output.csv_path`", csv_path),
        of("t-tests", "--method bca --ttest.enabled", "comparisons.0.tests"),
        of("power analysis", "--power.enabled", "power"),
        point(DOCUMENT, section, "paired when the seeds match, else unpaired", "by seed; `--unpaired` does not pair", pairing),
    ]  # fmt: skip


def both_spellings(desk: Desk) -> None:
    tail = f"--metric overview/reward {JSON}"
    together = desk.run(AT, f"analyze --pairs {PAIR_1} {PAIR_2} {tail}")
    apart = desk.run(AT, f"analyze --pairs {PAIR_1} --pairs {PAIR_2} {tail}")
    listed = desk.run(AT, """analyze --pairs '[{"control": "control_run1", "candidate": "treatment_run1"}, """
                          f"""{{"control": "control_run2", "candidate": "treatment_run2"}}]' {tail}""")  # fmt: skip
    effects = [look(answer, "comparisons.0.effect") for answer in (together, apart, listed)]
    assert effects[0] == effects[1] == effects[2]


def both_run_ids(desk: Desk) -> None:
    repeated = "analyze " + " ".join(
        [*(f"--control-run-ids run{n}" for n in (1, 2, 3)), *(f"--candidate-run-ids run{n}" for n in (4, 5, 6))]
    )
    answers = [desk.run(AT, f"{typed} {JSON}") for typed in (UNPAIRED, f"{repeated} --metric overview/reward")]
    assert look(answers[0], "comparisons.0.effect") == look(answers[1], "comparisons.0.effect")


def csv_path(desk: Desk) -> None:
    assert desk.run(AT, f"{TWO_ARMS} --output.csv_path per_run.csv").code == 0
    assert (desk.folder(AT) / "per_run.csv").read_text().startswith("variant,seed,metric,value")


def pairing(desk: Desk) -> None:
    paired = desk.run(AT, f"{TWO_ARMS} {JSON}").json["comparisons"][0]
    unpaired = desk.run(AT, f"{TWO_ARMS} --unpaired {JSON}").json["comparisons"][0]
    assert paired["method"] == "paired t" and unpaired["method"] != "paired t"
    assert "paired" not in desk.run(AT, f"{UNPAIRED} {JSON}").json["comparisons"][0]["method"]


def practices() -> list[Item]:
    section, page = "Best Practices", "docs/best-practices.md"
    return [
        point(DOCUMENT, section, "1. paired seeds reduce variance by 50–80 %", f"`analyze` reports the correlation; {page}",
              correlation, differs="no percentage is promised: pairing helps by as much as the streams that are shared do"),
        point(DOCUMENT, section, "2. variance analysis on pilot data", f"`power --pilot RUN…`, `variance`; {page}", pilot),
        point(DOCUMENT, section, "3. match model capacity", f"a caution above 10 %; {page}", unlike_capacity),
        point(DOCUMENT, section, "4. the same curriculum", f"a caution when arms differ beyond the change; {page}", unlike),
        point(DOCUMENT, section, "5. document everything", f"metadata.json; {page}", documented),
        point(DOCUMENT, section, "6. check assumptions", f"`diagnostics` of every comparison; {page}", diagnostics),
        point(DOCUMENT, section, "7. pre-register the analysis plan", f"`research preregister`, `analyze --plan`; {page}",
              registered),
    ]  # fmt: skip


def correlation(desk: Desk) -> None:
    said("correlation within pairs")(desk.run("fake", "analyze s --control base --candidate new"))


def pilot(desk: Desk) -> None:
    told = desk.run("fake", f"power --sesoi 0.01 --pilot 's/base.*' {JSON}")
    assert told.code == 0 and told.json["pilot_n"] == 6, told.shortened


def unlike_capacity(desk: Desk) -> None:
    capacity(desk)
    told = desk.run(AT, f"analyze --control-run-ids 'wide/*' --candidate-run-ids 'narrow/*' {JSON}")
    assert "parameters" in told.out + told.err, told.shortened


def unlike(desk: Desk) -> None:
    small = f"{SMALL} --seeds 2 {JSON}"
    variants = "--variant fixed:architecture=mlp --variant other:architecture=gru,curriculum=widening"
    assert desk.run(AT, f"launch ppo {variants} --base-run-name unlike {small}").code == 0
    told = desk.run(AT, "analyze unlike")
    said("curriculum")(told)


def documented(desk: Desk) -> None:
    """Commit, options, seed, versions, machine, the command line, a hash of the series and the instruction set."""
    desk.run("git", "train fake --steps 5 --study hash --variant v --format json")
    found = metadata(desk.folder("git"), "hash/v.seed1072")
    assert found["seed"] == 1072 and found["options"]["steps"] == 5
    environment = found["environment"]
    assert environment["git_commit"] and environment["versions"]
    assert environment["command_line"][:3] == ["fairtrial", "train", "fake"]
    assert set(found["series_sha256"]) >= {"eval_accuracy", "train_loss"}
    assert {"cpu_features", "torch_instruction_set"} <= set(environment)


def diagnostics(desk: Desk) -> None:
    found = desk.run("fake", f"analyze s --control base --candidate new {JSON}").json["comparisons"][0]
    assert {"shapiro_wilk_p", "levene_p", "bimodality"} <= set(found["diagnostics"])


def registered(desk: Desk) -> None:
    """A registration that was followed is said to have been."""
    folder = desk.folder("fake")
    (folder / "planned").mkdir(exist_ok=True)
    start = "research init --id plan --title Plan --type code --author 'Ada Lovelace' --license MIT --output planned"
    assert desk.run("fake", start).code == 0
    (folder / "planned" / "y.yaml").write_text((folder / "y.yaml").read_text())
    told = desk.run("fake", "research preregister planned/artifact.yaml --hypothesis H --methods M --study planned/y.yaml "
                            f"{JSON}")  # fmt: skip
    assert told.code == 0, told.shortened
    [plan] = (folder / "planned" / "registrations").glob("*.json")
    assert desk.run("fake", f"launch planned/y.yaml --store planned/runs --plan {plan} {JSON}").code == 0
    analysed = desk.run("fake", f"analyze --plan {plan} --store planned/runs")
    assert analysed.code == 0, analysed.shortened
    said("(?i)registered|registration")(analysed)
