"""Document 001: sweeps, strategies, ablation, cost, recommendation and the research workflow."""

from __future__ import annotations

import zipfile
from typing import Any

import yaml

import fairtrial
from tests.documents.desk import Answer, Desk
from tests.documents.places import POINTS
from tests.documents.records import Check, Item, See, field, fields, line, look, option, point, printed, read, said

DOCUMENT = "001"
TEACHER = "--teacher-steps 5 --teacher-width 4"
SMALL = f"{TEACHER} --steps 10 --eval-every 0 --labels 100"
CNN = f"{SMALL} --student-width 4"
TEMPERATURE = f"temperature --start 1 --end 2 --step 1 --runs 2 {SMALL}"
ALPHA = f"alpha --start 0 --end 1 --step 0.5 --runs 2 {SMALL}"
COMPARE = f"compare --strategies kd,mse --runs 3 {CNN}"
ABLATION = f"ablation --runs 2 {CNN}"
COST = "cost-performance --configs points.yaml"
RECOMMEND = "recommend --configs points.yaml"
FAMILY = "--runs 2 --set steps=2 --set pretrain_steps=2 --set labels=100"
JSON = "--format json"
THEIR_POINTS = "the document's own configurations come from a file; without one the newest study of the store is priced"


def items() -> list[Item]:
    return [*overview(), *temperature(), *alpha(), *compare(), *ablation(), *cost(), *recommend(), *formats(),
            *workflow(), *python()]  # fmt: skip


def overview() -> list[Item]:
    verbs = ("temperature", "alpha", "compare", "ablation", "cost-performance", "recommend")
    top = "Commands Overview"
    return [
        line(DOCUMENT, top, "entrenar-bench <COMMAND>", "--help", at="empty", says=["Usage: fairtrial"]),
        *(
            line(DOCUMENT, top, f"entrenar-bench {verb} [OPTIONS]", f"{verb} --help", at="empty",
                 says=[rf"Usage: fairtrial {verb} \[OPTIONS\]"])
            for verb in verbs
        ),
        *(field(DOCUMENT, top, f"command `{verb}`", "--help", said(rf"^ +{verb} "), at="empty", ours=f"`{verb}`")
          for verb in verbs),
    ]  # fmt: skip


def values(name: str) -> See:
    def see(answer: Answer) -> list[float]:
        return [row[name] for row in answer.json["results"]]

    return see


def temperature() -> list[Item]:
    section = "temperature"
    base = f"{TEMPERATURE} {JSON}"

    def of(theirs: str, given: str, see: See, **more: Any) -> Item:
        return option(DOCUMENT, section, theirs, base, given, see, at="lab", **more)

    return [
        line(DOCUMENT, section, "entrenar-bench temperature", "temperature", at="lab", add=SMALL,
             says=[r"^1\.0 ", r"^8\.0 ", "^Best temperature: "]),
        line(DOCUMENT, section, "entrenar-bench temperature --start 2.0 --end 6.0 --step 0.25",
             "temperature --start 2.0 --end 6.0 --step 0.25", at="lab", add=SMALL, says=[r"^2\.25 ", r"^6\.0 "]),
        line(DOCUMENT, section, "entrenar-bench temperature --runs 5 --format json", "temperature --runs 5 --format json",
             at="lab", add=SMALL, keys=["results.14.temperature", "best.temperature"]),
        of("`--start <VALUE>` (default: 1.0)", "--start 1.5 --step 0.5", "range.start", default="1.0", becomes=1.5),
        of("`--end <VALUE>` (default: 8.0)", "--end 3", "range.end", default="8.0", becomes=3.0),
        of("`--step <VALUE>` (default: 0.5)", "--step 0.5", values("temperature"), default="0.5", becomes=[1.0, 1.5, 2.0]),
        of("`--runs <N>` (default: 3)", "--runs 3", "results.0.runs", default="3", becomes=3),
        option(DOCUMENT, section, "`--format <FORMAT>` (default: text)", TEMPERATURE, JSON, lambda answer: answer.out[:1],
               at="lab", default="text", becomes="{"),
        field(DOCUMENT, "temperature, output", "title `Temperature Sweep Results`", TEMPERATURE,
              said("^Temperature Sweep Results$"), at="lab"),
        field(DOCUMENT, "temperature, output", "columns `Temp | Accuracy | Loss | Std Dev`", TEMPERATURE,
              said("^Temp +Accuracy +.*Loss +Std Dev"), at="lab",
              ours="the same columns, and the interval and the runs of each value"),
        field(DOCUMENT, "temperature, output", "`Best temperature: 4.0 (accuracy: 0.872)`", TEMPERATURE,
              said(r"^Best temperature: \d\.\d \(accuracy: 0\.\d{3,4}\)"), at="lab"),
    ]  # fmt: skip


def alpha() -> list[Item]:
    section, base = "alpha", f"{ALPHA} {JSON}"

    def of(theirs: str, given: str, see: See, **more: Any) -> Item:
        return option(DOCUMENT, section, theirs, base, given, see, at="lab", **more)

    return [
        line(DOCUMENT, section, "entrenar-bench alpha", "alpha", at="lab", add=SMALL, says=["^Best alpha: ", r"^1\.0 "]),
        line(DOCUMENT, section, "entrenar-bench alpha --start 0.3 --end 0.7 --step 0.05",
             "alpha --start 0.3 --end 0.7 --step 0.05", at="lab", add=SMALL, says=[r"^0\.35 ", r"^0\.7 "]),
        of("`--start <VALUE>` (default: 0.0)", "--start 0.5", "range.start", default="0.0", becomes=0.5),
        of("`--end <VALUE>` (default: 1.0)", "--end 0.5", "range.end", default="1.0", becomes=0.5),
        of("`--step <VALUE>` (default: 0.1)", "--step 0.25", values("alpha"), default="0.1",
           becomes=[0.0, 0.25, 0.5, 0.75, 1.0]),
        of("`--runs <N>` (default: 3)", "--runs 3", "results.0.runs", default="3", becomes=3),
        option(DOCUMENT, section, "`--format <FORMAT>` (default: text)", ALPHA, JSON, lambda answer: answer.out[:1],
               at="lab", default="text", becomes="{"),
        *fields("commands", "temperature, alpha, sweep", base, ["best.alpha", "best_alpha", "results.0.alpha"], at="lab"),
    ]  # fmt: skip


def compare() -> list[Item]:
    section, base = "compare", f"{COMPARE} {JSON}"
    names = lambda answer: sorted(row["name"] for row in answer.json["strategies"])  # noqa: E731
    return [
        line(DOCUMENT, section, "entrenar-bench compare --strategies kd,progressive,attention,mse,combined",
             "compare --strategies kd,progressive,attention,mse,combined", at="lab", add=f"--runs 2 {CNN}",
             says=[rf"^{name} " for name in ("kd", "progressive", "attention", "mse", "combined", "none")]),
        line(DOCUMENT, section, "entrenar-bench compare --strategies kd,progressive --runs 10",
             "compare --strategies kd,progressive --runs 10", at="lab", add=CNN, says=[r"^kd +0\.\d+ .* 10$"]),
        option(DOCUMENT, section, "`--strategies <LIST>`", base, "--strategies attention", names, at="lab",
               becomes=["attention", "none"]),
        option(DOCUMENT, section, "`--runs <N>` (default: 5)", base, "--runs 2", "strategies.0.runs", at="lab",
               default="5", becomes=2),
        option(DOCUMENT, section, "`--format <FORMAT>` (default: text)", COMPARE, JSON, lambda answer: answer.out[:1],
               at="lab", default="text", becomes="{"),
        field(DOCUMENT, "compare, output", "title `Strategy Comparison Results`", COMPARE,
              said("^Strategy Comparison Results$"), at="lab"),
        field(DOCUMENT, "compare, output", "columns `Strategy | Accuracy | Loss | Time (s) | Memory (GB)`", COMPARE,
              said(r"^Strategy +Accuracy +.*Loss +Time.* Memory \(GB\)"), at="lab",
              ours="the same columns; the unit of the time stands in the cell, since it may be minutes"),
        point(DOCUMENT, "compare, output", "`- progressive > kd` for p < 0.05", "`combined > kd (p = …, Δ = … [low, high])`",
              significant, differs="each line also has its p, the difference and its interval, judged as one family"),
    ]  # fmt: skip


def significant(desk: Desk) -> None:
    """Students that only imitate a teacher which has learned nothing are worse than those that have labels."""
    typed = f"compare --strategies kd --seeds 6 {CNN} --alpha 1 --steps 60 --labels 0"
    said(r"^none > kd \(p = \S+, Δ = \+0\.\d+ \[\+0\.\d+, \+0\.\d+\]\)")(desk.run("lab", typed))
    [row] = desk.run("lab", f"{typed} {JSON}").json["significant"]
    assert {"better", "worse", "p", "p_adjusted", "delta", "ci"} <= set(row)


def ablation() -> list[Item]:
    section, base = "ablation", f"{ABLATION} {JSON}"
    removed = lambda answer: [row["removed"] for row in answer.json["rows"]]  # noqa: E731
    names = '"temperature,attention_loss,layer_matching"'
    return [
        line(DOCUMENT, section, f"entrenar-bench ablation --base config.yaml --components {names}",
             f"ablation --base config.yaml --components {names}", at="lab", add=f"--runs 2 {CNN}",
             says=["^Full model .*baseline", "^− temperature", "^− attention_loss", "^− layer_matching"]),
        point(DOCUMENT, section, "`--base <CONFIG>`", "`--base config.yaml`: the student is the same as without a base file",
              same_student),
        option(DOCUMENT, section, "`--components <LIST>`", base, "--components temperature", removed, at="lab",
               becomes=[["temperature"]]),
        option(DOCUMENT, section, "`--runs <N>` (default: 3)", base, "--runs 3", "rows.0.runs", at="lab", default="3",
               becomes=3),
        option(DOCUMENT, section, "`--format <FORMAT>` (default: text)", ABLATION, JSON, lambda answer: answer.out[:1],
               at="lab", default="text", becomes="{"),
        field(DOCUMENT, "ablation, output", "title `Ablation Study Results`", ABLATION, said("^Ablation Study Results$"),
              at="lab"),
        field(DOCUMENT, "ablation, output", "row `Full model | 0.889 | baseline`", ABLATION,
              said(r"^Full model +0\.\d+ +baseline"), at="lab"),
        field(DOCUMENT, "ablation, output", "row `- temperature scaling | 0.856 | -0.033`", ABLATION,
              said(r"^− temperature +0\.\d+ +[−+±]?\d"), at="lab", ours="`− temperature`, with the interval of the change"),
        field(DOCUMENT, "ablation, output", "row `- temp - attn`", f"{ABLATION} --also temperature+attention_loss",
              said(r"^− temperature − attention_loss +0"), at="lab", ours="`--also temperature+attention_loss`"),
    ]  # fmt: skip


def same_student(desk: Desk) -> None:
    """A base file that names strategy, temperature and alpha changes those, and nothing else of the student."""
    without = desk.run("lab", f"{ABLATION} {JSON}")
    with_base = desk.run("lab", f"{ABLATION} --base config.yaml {JSON}")
    assert with_base.code == 0, with_base.err
    full = [look(answer, "baseline") for answer in (without, with_base)]
    assert full[0] == full[1], "the base file names the very values that are the default"
    (desk.folder("lab") / "cooler.yaml").write_text("strategy: combined\ntemperature: 2.0\nalpha: 0.9\n")
    other = desk.run("lab", f"{ABLATION} --base cooler.yaml {JSON}")
    assert other.json["rows"] != without.json["rows"], "another base file changes nothing"


def cost() -> list[Item]:
    section, base = "cost-performance", f"{COST} {JSON}"
    cards = {"a100-80gb": (3.0, 80, 1.0), "v100": (2.0, 16, 0.6), "t4": (0.5, 16, 0.3)}
    title = "cost-performance, output"
    return [
        line(DOCUMENT, section, "entrenar-bench cost-performance --gpu a100-80gb", "cost-performance --gpu a100-80gb",
             at="family", add=FAMILY, says=["Config +Hours +Cost +Accuracy", "^Cost efficiency winner: "]),
        line(DOCUMENT, section, "entrenar-bench cost-performance --gpu t4 --format json",
             "cost-performance --gpu t4 --format json", at="family", add=FAMILY,
             keys=["points.0.cost", "frontier.0", "gpu.name"]),
        option(DOCUMENT, section, "`--gpu <TYPE>` (default: a100-80gb)", base, "--gpu t4", "points.0.cost", at="choice",
               default="a100-80gb"),
        option(DOCUMENT, section, "`--configs <PATH>`", base, "--configs seeded.yaml", "points.#", at="choice", becomes=3),
        option(DOCUMENT, section, "`--format <FORMAT>` (default: text)", COST, JSON, lambda answer: answer.out[:1],
               at="choice", default="text", becomes="{"),
        *(point(DOCUMENT, "GPU Cost Models", f"{name}: ${price:.2f} an hour, {memory} GB, {speed}x", f"`--gpu {name}`",
                card(name, (price, memory, speed))) for name, (price, memory, speed) in cards.items()),
        field(DOCUMENT, title, "title `Cost-Performance Analysis (A100-80GB @ $3.00/hr)`", COST,
              said(r"(?i)^Cost-Performance Analysis \(a100-80gb @ \$3\.00/hr\)"), at="choice"),
        field(DOCUMENT, title, "columns `Config | Hours | Cost | Accuracy | Pareto`", COST,
              said("^Config +Hours +Cost +Accuracy .*Pareto"), at="choice",
              ours="the same columns, and memory, savings and how probably each is on the frontier"),
        field(DOCUMENT, title, "`$144.60`: money with two decimals", COST, said(r"\$144\.60"), at="choice"),
        point(DOCUMENT, title, "`Pareto Frontier: 4 configurations`", "5 of 5 configurations on the frontier", five,
              differs="LoRA r=32 costs less than r=64 and reaches more than r=16: nothing dominates it, so it is on the "
              "frontier and there are five"),
        field(DOCUMENT, title, "`Cost efficiency winner: LoRA r=8 (0.134 acc/$)`", COST,
              said(r"^Cost efficiency winner: LoRA r=8 \(0\.134 "), at="choice"),
    ]  # fmt: skip


def card(name: str, expected: tuple[float, int, float]) -> Check:
    def check(desk: Desk) -> None:
        gpu = desk.run("choice", f"{COST} --gpu {name} {JSON}").json["gpu"]
        assert (gpu["usd_per_hour"], gpu["memory_gb"], gpu["performance"]) == expected, gpu

    return check


def five(desk: Desk) -> None:
    found = desk.run("choice", f"{COST} {JSON}").json
    assert len(found["frontier"]) == 5 and all(row["pareto"] for row in found["points"])
    assert [round(row["cost"], 2) for row in found["points"]] == [6.30, 9.60, 17.40, 31.20, 144.60]


def recommend() -> list[Item]:
    section, base = "recommend", f"{RECOMMEND} {JSON}"
    one = f"{RECOMMEND} --max-cost 20 --min-accuracy 0.85"
    output = "recommend, output"
    name = "recommended.name"
    return [
        line(DOCUMENT, section, "entrenar-bench recommend --max-cost 50", "recommend --max-cost 50", at="family", add=FAMILY,
             says=["^Take ", "^Why:"]),
        line(DOCUMENT, section, "entrenar-bench recommend --min-accuracy 0.85",
             "recommend --min-accuracy 0.85 --configs points.yaml", at="choice", says=["^Take Full fine-tune"],
             differs=THEIR_POINTS),
        line(DOCUMENT, section, "entrenar-bench recommend --max-cost 100 --min-accuracy 0.87 --max-memory 16 --gpu v100",
             "recommend --max-cost 100 --min-accuracy 0.87 --max-memory 16 --gpu v100 --configs points.yaml", at="choice",
             says=["^Take LoRA r=32 on v100"], differs=THEIR_POINTS),
        option(DOCUMENT, section, "`--max-cost <USD>`", base, "--max-cost 20", name, at="choice", becomes="LoRA r=32"),
        option(DOCUMENT, section, "`--min-accuracy <VALUE>`", f"{base} --objective cost", "--min-accuracy 0.87", name,
               at="choice", becomes="LoRA r=32"),
        option(DOCUMENT, section, "`--max-time <HOURS>`", base, "--max-time 4", name, at="choice", becomes="LoRA r=16"),
        option(DOCUMENT, section, "`--max-memory <GB>`", base, "--max-memory 15", name, at="choice", becomes="LoRA r=32"),
        option(DOCUMENT, section, "`--gpu <TYPE>`", f"{base} --max-memory 15", "--gpu t4", "expected.cost", at="choice"),
        option(DOCUMENT, section, "`--format <FORMAT>` (default: text)", RECOMMEND, JSON, lambda answer: answer.out[:1],
               at="choice", default="text", becomes="{"),
        field(DOCUMENT, output, "title `Recommendations (Budget: $50, Min Accuracy: 0.85)`",
              f"{RECOMMEND} --max-cost 50 --min-accuracy 0.85",
              said(r"^Recommendations \(Budget: \$50(\.00)?, Min Accuracy: 0\.85"), at="choice"),
        field(DOCUMENT, output, "Method, Rank, Learning Rate, Batch Size", one,
              said(r"^Settings: method LoRA, rank 32, learning_rate 0\.0001, batch_size 8"), at="choice",
              ours="`Settings: method LoRA, rank 32, …`"),
        field(DOCUMENT, output, "Accuracy, Training Time, Cost", one,
              said(r"^Expect accuracy 0\.871\d*.*5\.80 h and \$17\.40"), at="choice",
              ours="`Expect accuracy 0.8710, 5.80 h and $17.40`"),
        field(DOCUMENT, output, "Memory: 14.2 GB", one, said(r"needs 14\.2 GB"), at="choice", ours="`It needs 14.2 GB, …`"),
        field(DOCUMENT, output, "Rationale: best accuracy within budget", one, said("has the highest accuracy"), at="choice",
              ours="`Why: … has the highest accuracy`"),
        field(DOCUMENT, output, "Rationale: 2.9x cost savings vs full fine-tuning", COST, said(r"^LoRA r=32 .* 8\.31 ×"),
              at="choice", ours="column `Savings` of `cost-performance`",
              differs="it is computed: $144.60 / $17.40 is 8.31, not 2.9"),
        field(DOCUMENT, output, "Alternative Options", one, said("^Alternatives on the frontier:"), at="choice",
              ours="`Alternatives on the frontier`"),
        point(DOCUMENT, output, "recommended under $50: LoRA r=32", "`Take LoRA r=64`", best_within_budget,
              differs="LoRA r=64 costs $31.20, is within the budget of $50 and reaches more: it is the best accuracy "
              "within budget"),
    ]  # fmt: skip


def best_within_budget(desk: Desk) -> None:
    found = desk.run("choice", f"{RECOMMEND} --max-cost 50 --min-accuracy 0.85 {JSON}").json
    assert found["recommended"]["name"] == "LoRA r=64" and found["expected"]["accuracy"] == 0.878


def formats() -> list[Item]:
    section, base = "Output Formats", f"{TEMPERATURE} {JSON}"
    keys = ["sweep_type", "range.start", "range.end", "range.step", "results.0.temperature", "results.0.accuracy",
            "results.0.loss", "results.0.std_dev", "best.temperature", "best.accuracy",
            "statistical_analysis.mean_accuracy", "statistical_analysis.variance"]  # fmt: skip
    return [
        line(DOCUMENT, section, "entrenar-bench temperature --format text", "temperature --format text", at="lab", add=SMALL,
             says=["^Best temperature"]),
        line(DOCUMENT, section, "entrenar-bench temperature --format json | jq '.best_temperature'",
             "temperature --format json | jq '.best_temperature'", at="lab", add=SMALL, says=[r"^\d\.\d$"]),
        *fields(DOCUMENT, section, base, keys, at="lab"),
    ]  # fmt: skip


TITLE = '"Knowledge Distillation Benchmark Study"'
HYPOTHESIS = '"Temperature T=4 is optimal"'
METHODS = '"Grid search T in [1,8], step 0.5, 5 runs each"'
WORKFLOW = (
    (f"research init --id distillation-benchmark --title {TITLE} --type dataset", ""),
    (f"research preregister artifact.yaml --hypothesis {HYPOTHESIS} --methods {METHODS}", ""),
    ("temperature --start 1 --end 8 --step 0.5 --runs 5 --format json > results.json",
     f"{SMALL} --step 3.5 --runs 2 --no-stack"),
    ("cost-performance --gpu a100-80gb", ""),
    ("recommend --max-cost 100 --min-accuracy 0.85", ""),
    ("research bundle artifact.yaml --zip", "--no-charts"),
)  # fmt: skip
"""Every step needs those before it."""


def workflow() -> list[Item]:
    section, at = "Integration with Research Workflow", "research"

    def step(number: int, program: str, **expected: Any) -> Item:
        typed, add = WORKFLOW[number - 1]
        return line(DOCUMENT, section, f"{program} {typed}", typed, at=at, add=add, **expected)

    return [
        step(1, "entrenar", files=["artifact.yaml", "CITATION.cff"], says=["(?i)author", "(?i)licen[cs]e"]),
        step(2, "entrenar", files=["registrations"]),
        step(3, "entrenar-bench", files=["results.json"], keys=["best.temperature"]),
        step(4, "entrenar-bench", says=["Config +Hours +Cost"]),
        step(5, "entrenar-bench", code=3, says=["(?i)min-accuracy|accuracy"],
             differs="nothing that is trained here reaches 0.85: the exit code is 3, and the smallest relaxation is named"),
        step(6, "entrenar", files=["distillation-benchmark-0.1.0.zip"]),
        point(DOCUMENT, section, "`--id`", "`--id NAME`", described("id", "distillation-benchmark")),
        point(DOCUMENT, section, "`--title`", "`--title TEXT`", described("title", "Knowledge Distillation Benchmark Study")),
        point(DOCUMENT, section, "`--type dataset`", "`--type dataset`", described("type", "dataset")),
        point(DOCUMENT, section, "`--hypothesis`, `--methods`", "`--hypothesis TEXT`, `--methods TEXT`", registered),
        field("commands", "research", "`research verify`", "research verify distillation-benchmark-0.1.0.zip",
              said("intact"), at=at),
        field("commands", "research", "`research cite`", "research cite", said("@"), at=at),
        option("commands", "research", "`research export`", "research export --to markdown", "--to notebook", printed,
               at=at),
        point("commands", "research", "`research add FILE`", "`research add results.json`", added),
        point("commands", "research", "`research preregister --study STUDY.yaml`", "`--study`", by_study),
        point("commands", "research", "`research preregister --command '…'`", "`--command`", by_command),
        point("commands", "research", "`--type model`, `--type code`", "`--type KIND`", other_types),
    ]  # fmt: skip


def described(key: str, value: str) -> Check:
    def check(desk: Desk) -> None:
        desk.run("research", WORKFLOW[0][0])
        assert yaml.safe_load(read(desk.folder("research") / "artifact.yaml"))[key] == value

    return check


def registered(desk: Desk) -> None:
    desk.run("research", WORKFLOW[1][0])
    text = "".join(map(read, (desk.folder("research") / "registrations").glob("*.json")))
    assert "Temperature T=4 is optimal" in text and "Grid search T in [1,8], step 0.5, 5 runs each" in text


def added(desk: Desk) -> None:
    assert desk.run("research", "research add results.json").code == 0
    assert desk.run("research", "research bundle artifact.yaml --zip --no-charts --output added.zip").code == 0
    with zipfile.ZipFile(desk.folder("research") / "added.zip") as packed:
        assert any(name.endswith("results.json") for name in packed.namelist())


STUDY = "study: z\nrecipe: fake\noptions: {steps: 5}\nvariants: {a: {}, b: {effect: 0.1}}\nseeds: 3\nmetric: report_accuracy\n"
WORDS = "--hypothesis H --methods M --format json"


def by_study(desk: Desk) -> None:
    (desk.folder("research") / "z.yaml").write_text(STUDY)
    found = desk.run("research", f"research preregister artifact.yaml --study z.yaml {WORDS}")
    assert found.code == 0 and '"z"' in found.out, found.err


def by_command(desk: Desk) -> None:
    typed = f"research preregister artifact.yaml --command 'sweep fake --param effect=0.0,0.1 --study w' {WORDS}"
    found = desk.run("research", typed)
    assert found.code == 0, found.err
    texts = map(read, (desk.folder("research") / "registrations").glob("*.json"))
    assert any("effect=0.0,0.1" in text for text in texts)


def other_types(desk: Desk) -> None:
    for kind in ("model", "code"):
        folder = desk.folder("empty") / kind
        told = desk.run("empty", f"research init --id a --title A --type {kind} --output {kind}")
        assert told.code == 0, told.err
        assert yaml.safe_load(read(folder / "artifact.yaml"))["type"] == kind


def python() -> list[Item]:
    section = "Programmatic API"
    return [
        point(DOCUMENT, section, "`temperature_sweep(1.0..8.0, 0.5, 3)`, `result.best_param`",
              "`fairtrial.temperature_sweep(1.0, 8.0, 0.5, 3).best_param`", sweep_in_python,
              differs="Python has no range type for numbers: start and end are two arguments"),
        point(DOCUMENT, section, "`compare_strategies`", "`fairtrial.compare_strategies`", strategies_in_python),
        point(DOCUMENT, section, "`CostModel::a100_80gb()`", "`CostModel.a100_80gb()`", cost_model),
        point(DOCUMENT, section, "`analysis.compute_pareto_frontier(&points)`", "`compute_pareto_frontier(points)`", frontier),
        point(DOCUMENT, section, "`Constraints { max_cost, min_accuracy }`, `analysis.recommend(&points, &constraints)`",
              "`analysis.recommend(points, Constraints(max_cost=50.0, min_accuracy=0.85))`", advice),
    ]  # fmt: skip


def small_settings() -> dict[str, int]:
    words = SMALL.split()
    return {
        flag.removeprefix("--").replace("-", "_"): int(value)
        for flag, value in zip(words[::2], words[1::2], strict=True)
    }


def sweep_in_python(desk: Desk) -> None:
    terms = fairtrial.LabConfig(store=desk.folder("lab") / "runs")
    found = fairtrial.temperature_sweep(1.0, 2.0, 1.0, 2, options=small_settings(), terms=terms)
    assert found.best_param == desk.run("lab", f"{TEMPERATURE} {JSON}").json["best"]["temperature"]


def strategies_in_python(desk: Desk) -> None:
    options = {**small_settings(), "student_width": 4}
    terms = fairtrial.LabConfig(runs=3, store=desk.folder("lab") / "runs")
    found = fairtrial.compare_strategies(["kd", "mse"], options=options, terms=terms)
    assert found.to_dict()["strategies"] == desk.run("lab", f"{COMPARE} {JSON}").json["strategies"]


def cost_model(desk: Desk) -> None:
    assert fairtrial.CostModel.a100_80gb().card.usd_per_hour == 3.0


def _points() -> list[fairtrial.CostPoint]:
    known = ("name", "hours", "accuracy", "memory", "device")
    return [fairtrial.CostPoint(**{name: row[name] for name in known}) for row in yaml.safe_load(POINTS)]


def frontier(desk: Desk) -> None:
    found = fairtrial.CostPerformanceAnalysis(fairtrial.CostModel.a100_80gb()).compute_pareto_frontier(_points())
    assert len(found) == 5


def advice(desk: Desk) -> None:
    analysis = fairtrial.CostPerformanceAnalysis(fairtrial.CostModel.a100_80gb())
    found = analysis.recommend(_points(), fairtrial.Constraints(max_cost=50.0, min_accuracy=0.85))
    assert "LoRA r=64" in str(found)
