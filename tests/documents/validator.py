"""Document 000: a benchmark command that keeps step with its training command."""

from __future__ import annotations

from tests.documents.desk import Desk
from tests.documents.places import ARCHITECTURE, CONTROL, EXCLUDED, OUTPUT, RESUME, STAGE_RATES, STAGES
from tests.documents.records import Check, Item, See, field, fields, line, option, point, printed, said

DOCUMENT = "000"
TRAIN = "maou.infra.console.learn_model:learn_model"
BENCH = "maou.infra.console.utility:benchmark_training"
BOTH = f"sync {TRAIN} {BENCH}"
LISTED = f"{BOTH} --exclude-file all.yaml"
DRIFTED = f"sync {TRAIN} maou.infra.console.utility:drifted --exclude-file all.yaml"
INTERFACE = "maou.interface.utility_interface:benchmark_training"
JSON = "--format json"
AT = "sync"


def items() -> list[Item]:
    return [*lines(), *report(), *categories(), *specified()]


def lines() -> list[Item]:
    return [
        line(DOCUMENT, "1. Extract Current CLI Options",
             'uv run python -c "import maou.infra.console.learn_model as lm …"', BOTH, at=AT, code=3,
             says=["^=== CLI Option Sync Report ===$", "^Common options: 4$", "^learn-model only: 31$",
                   "^benchmark-training only: 1$", "^Options in learn-model but NOT in benchmark-training:$",
                   "^Options in benchmark-training but NOT in learn-model:$"],
             differs="one command instead of a program to paste"),
        line(DOCUMENT, "3. Run the Compatibility Test",
             "uv run pytest tests/maou/infra/console/test_cli_option_compatibility.py -v",
             f"{LISTED} --run-test 'pytest test_pass.py'", at=AT, says=["^Test result: PASS"],
             differs="the comparison itself is the test, and exits with 3 on a gap; --run-test runs one of your own too"),
        line(DOCUMENT, "5. Verify Interface Layer Consistency", 'uv run python -c "import inspect …"',
             f"{LISTED} --interface {INTERFACE}", at=AT, says=["Status: PASS"],
             differs="parameters that the function lacks are listed instead of all that it has"),
    ]  # fmt: skip


def report() -> list[Item]:
    section = "Report Format"
    texts = {
        "title `Benchmark Training Sync Report`": "^=== Benchmark Training Sync Report ===$",
        "`Status: PASS`": "^Status: PASS",
        "`Common options: N`": "^Common options: 4$",
        "`learn-model only (excluded): N`": r"^learn-model only \(excluded\): 31$",
        "`learn-model only (MISSING - action required): N`": r"^learn-model only \(MISSING - action required\): 0$",
        "`benchmark-training only: N`": "^benchmark-training only: 1$",
    }
    gap = {
        "`Status: FAIL`, exit code": "^Status: FAIL",
        "missing options that need to be added, with their description": r"^  --optimizer: Sets optimizer\.",
    }
    return [
        *(field(DOCUMENT, section, theirs, LISTED, said(pattern), at=AT) for theirs, pattern in texts.items()),
        *(point(DOCUMENT, section, theirs, "exit code 3, and the list to mend", fails(pattern))
          for theirs, pattern in gap.items()),
        field(DOCUMENT, section, "missing options that need to be added to the exclusion list", BOTH,
              said(r"exclusion list:\n(?:.*\n)*?  --log-dir: \S"), at=AT),
        field(DOCUMENT, section, "`Test result: FAIL`", f"{LISTED} --run-test false",
              said("^Test result: FAIL"), at=AT),
        point(DOCUMENT, "6. Constraint", "no option for a data format that the trainer lacks",
              "bench-only options are listed, never asked for", bench_only),
    ]  # fmt: skip


def fails(pattern: str) -> Check:
    def check(desk: Desk) -> None:
        answer = desk.run(AT, DRIFTED)
        assert answer.code == 3, answer.out
        said(pattern)(answer)

    return check


def bench_only(desk: Desk) -> None:
    answer = desk.run(AT, f"{LISTED} {JSON}")
    assert answer.code == 0 and len(answer.json["bench_only"]) == 1


def categories() -> list[Item]:
    """Nothing is excluded by hand here: every documented option is sorted to the exclusion list by its name."""
    named = {
        "Output/logging": OUTPUT, "Checkpointing/resume": RESUME, "Training control (non-benchmark)": CONTROL,
        "Architecture-specific (non-benchmark)": ARCHITECTURE, "Multi-stage thresholds/epochs": STAGES,
        "Stage-specific batch/lr (benchmark uses shared)": STAGE_RATES,
    }  # fmt: skip
    return [
        *(point(DOCUMENT, "2. Check Test Exclusion List", f"category {name}",
                f"the same category: {', '.join(f'`{each}`' for each in options)}", sorted_out(options))
          for name, options in named.items()),
        point(DOCUMENT, "2. Check Test Exclusion List", "an exclusion needs a justification", "`--exclude PATTERN=REASON`",
              reasons),
        point(DOCUMENT, "2. Check Test Exclusion List", "no option is excluded that should be in the benchmark",
              "`suspicious_exclusions`", suspicious),
        point(DOCUMENT, "2. Check Test Exclusion List", "one editable list", "`--categories FILE`", own_categories),
    ]  # fmt: skip


def sorted_out(options: list[str]) -> Check:
    def check(desk: Desk) -> None:
        found = {row["name"]: row for row in desk.run(AT, f"{BOTH} {JSON}").json["missing"]}
        to_add = [name for name in options if found[name]["add_to"] != "exclusions"]
        assert not to_add, f"these are said to belong into the benchmark: {to_add}"

    return check


def reasons(desk: Desk) -> None:
    refused = desk.run(AT, f"{BOTH} --exclude log-dir")
    assert refused.code in (1, 2) and "reason" in refused.err, refused.err
    told = desk.run(AT, f"{BOTH} --exclude 'log-dir=nothing is logged' {JSON}").json["excluded"]
    assert [row["reason"] for row in told] == ["nothing is logged"]


def suspicious(desk: Desk) -> None:
    told = desk.run(AT, f"{LISTED} --exclude 'learning-rate=never mind' {JSON}").json
    assert told["stale_exclusions"] or told["suspicious_exclusions"]
    drifted = desk.run(AT, f"{DRIFTED} --exclude 'optimizer=never mind' {JSON}").json
    assert drifted["suspicious_exclusions"]


def own_categories(desk: Desk) -> None:
    """A list of one's own decides instead of the built-in one: in this one, freezing belongs into the benchmark."""
    before = {row["name"]: row["add_to"] for row in desk.run(AT, f"{BOTH} {JSON}").json["missing"]}
    (desk.folder(AT) / "categories.yaml").write_text("categories:\n  - {name: ours, patterns: [freeze-backbone]}\n")
    told = desk.run(AT, f"{BOTH} --categories categories.yaml {JSON}")
    assert told.code == 3, told.err
    after = {row["name"]: row["add_to"] for row in told.json["missing"]}
    assert (before["freeze-backbone"], after["freeze-backbone"]) == ("exclusions", "bench")


def specified() -> list[Item]:
    section = "sync"

    def of(theirs: str, given: str, see: See) -> Item:
        return option("commands", section, theirs, f"{DRIFTED} {JSON}", given, see, at=AT, code=3)

    return [
        of("`--interface pkg.mod:function`", "--interface maou.interface.utility_interface:narrow", "not_accepted"),
        option("commands", section, "`--exclude 'tensorboard-*=reason'`", f"{BOTH} {JSON}",
               "--exclude 'tensorboard-*=nothing is logged'", "excluded.#", at=AT, code=3, becomes=1),
        option("commands", section, "`--exclude-file F`", f"{BOTH} {JSON}", "--exclude-file all.yaml", "missing.#", at=AT,
               becomes=0),
        of("`--docs FILE.md`", "--docs short.md", "undocumented"),
        of("`--run-test 'pytest …'`", "--run-test false", "test"),
        option("commands", section, "`--format`", LISTED, "--format csv", printed, at=AT),
        *fields("commands", section, f"{DRIFTED} {JSON}",
                ["status", "gaps", "common", "train_only", "bench_only", "excluded", "missing", "differing", "renamed",
                 "stale_exclusions", "suspicious_exclusions", "interface", "not_accepted", "undocumented", "test"], at=AT),
        point("commands", section, "exit 3 on a gap", "exit code 3; 0 if the two agree", exit_codes),
    ]  # fmt: skip


def exit_codes(desk: Desk) -> None:
    assert desk.run(AT, LISTED).code == 0 and desk.run(AT, DRIFTED).code == 3 and len(EXCLUDED) == 31
