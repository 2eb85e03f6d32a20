"""A project logs what its verbs were asked and what they answered, whether the shell or Python asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import fairtrial
from fairtrial import Constraints, LabConfig, Question, Source, SummaryRule
from fairtrial.api.running.logged_command import LoggedCommand
from fairtrial.api.running.recording import recorded, unrecorded
from fairtrial.api.running.runs import remove_runs
from fairtrial.core.errors import UserError
from fairtrial.record.store import Store
from fairtrial.research.command_log import read_command_log, removed_runs
from tests.conftest import Answer

Cli = Callable[..., Answer]
ARTIFACT = "id: tea\ntitle: Tea\ntype: experiment\nlicense: MIT\nauthors: [{family: Lovelace, given: Ada}]\n"
OPTIONS: dict[str, Any] = {"steps": 4, "eval_every": 0, "checkpoint_every": 0}
FLAGS = ("--steps", "4", "--eval-every", "0", "--checkpoint-every", "0")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "artifact.yaml").write_text(ARTIFACT)
    return tmp_path


def log_of(project: Path) -> list[dict[str, Any]]:
    return read_command_log(project / "artifact.journal.jsonl")


def swept(study: str = "cups", **how: Any) -> fairtrial.Sweep:
    return fairtrial.sweep(
        "fake", ["effect=0,0.02"], options=OPTIONS, terms=LabConfig(runs=2, study=study, jobs=1), **how
    )


ASKED: dict[str, tuple[Callable[[], Any], Sequence[str]]] = {
    "sweep": (swept, ("sweep", "fake", "--param", "effect=0,0.02", "--runs", "2", "--study", "cups", *FLAGS)),
    "analyze": (lambda: fairtrial.analyze("cups"), ("analyze", "cups")),
    "variance": (lambda: fairtrial.variance("cups:effect=0.0"), ("variance", "cups:effect=0.0")),
    "power": (lambda: fairtrial.power(sd=0.1, sesoi=0.1), ("power", "--sd", "0.1", "--sesoi", "0.1")),
    "train": (
        lambda: fairtrial.train("fake", OPTIONS, study="alone"),
        ("train", "fake", "--study", "alone", *FLAGS),
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("verb", ASKED)
def test_a_call_from_python_and_a_command_log_the_same_line(project: Path, cli: Cli, verb: str) -> None:
    call, words = ASKED[verb]
    swept()
    call()  # what is trained is there from now on, so that both below find the same
    call()
    assert cli(*words).code == 0
    [*_, python, shell] = log_of(project)
    assert python["command"][0] == shell["command"][0] == verb and python["command"] != shell["command"]
    own = ("at", "seconds", "command")
    assert {k: v for k, v in python.items() if k not in own} == {k: v for k, v in shell.items() if k not in own}
    assert list(python) == list(shell) and python["result"] and python["exit"] == 0


@pytest.mark.slow
def test_nothing_is_logged_outside_of_a_project(tmp_path: Path) -> None:
    swept()
    assert not list(tmp_path.glob("*.jsonl"))


@pytest.mark.slow
def test_one_call_is_one_line_also_where_a_verb_is_made_of_others(project: Path) -> None:
    swept(confirm=2)  # trains again and analyses that
    assert [entry["command"][0] for entry in log_of(project)] == ["sweep"]


@pytest.mark.slow
def test_the_words_of_a_call_are_its_verb_and_what_was_given_otherwise_than_by_default(project: Path) -> None:
    swept()
    question = Question(metrics=["report_accuracy"], method="wilcoxon", summary=SummaryRule("last", points=1))
    fairtrial.analyze("cups", control="effect=0.0", question=question, store=project / "store")
    first, second = (entry["command"] for entry in log_of(project))
    options = 'options={"steps":4,"eval_every":0,"checkpoint_every":0}'
    assert first == ["sweep", "recipe=fake", 'params=["effect=0,0.02"]', options, "jobs=1", "runs=2", "study=cups"]
    assert second[:3] == ["analyze", "studies=cups", "control=effect=0.0"]
    assert 'metrics=["report_accuracy"]' in second and "method=wilcoxon" in second
    assert second[-1] == f"store={project / 'store'}"


def test_what_was_refused_is_logged_with_the_exit_code_of_the_shell(project: Path, cli: Cli) -> None:
    with pytest.raises(UserError):
        fairtrial.analyze("nothing")
    assert cli("analyze", "nothing").code == 1
    python, shell = log_of(project)
    assert (python["exit"], python["result"]) == (shell["exit"], shell["result"]) == (1, None)


@pytest.mark.slow
def test_a_log_that_cannot_be_written_takes_no_result_away(project: Path, cli: Cli) -> None:
    (project / "artifact.journal.jsonl").mkdir()
    assert swept().best_param is not None
    assert cli("analyze", "cups").code == 0


def test_secrets_that_python_gives_are_not_logged(project: Path) -> None:
    @recorded("train", document=dict)
    def verb(options: dict[str, Any], *, secrets: Sequence[str] = ()) -> dict[str, Any]:
        return {"study": "s", "given": options["hub_token"], "secrets": list(secrets)}

    token = "hf_" + "aB3" * 12
    verb({"hub_token": token, "pin": 4711, "argv": ["--password", "open4me9"]}, secrets=["pin"])
    content = (project / "artifact.journal.jsonl").read_text()
    assert not any(secret in content for secret in (token, "4711", "open4me9")), content
    assert "{env:FAIRTRIAL_SECRET_PIN}" in content


@pytest.mark.slow
def test_runs_that_python_removes_are_known_to_be_gone(project: Path) -> None:
    swept()
    [first, *_] = sorted(path.name for path in (project / "store/cups").glob("effect=0.0.*"))
    remove_runs([f"cups/{first}"])
    assert removed_runs(log_of(project), "cups") == [f"cups/{first}"]


def test_a_recorded_verb_looks_like_the_function_that_it_is() -> None:
    import inspect

    assert list(inspect.signature(fairtrial.sweep).parameters)[:2] == ["recipe", "params"]
    assert fairtrial.sweep.__name__ == "sweep" and "every setting of a grid" in (fairtrial.sweep.__doc__ or "")
    assert unrecorded(fairtrial.sweep) is inspect.unwrap(fairtrial.sweep)


def test_a_command_keeps_what_it_adds_to_the_answer_of_its_verb(project: Path) -> None:
    @recorded("analyze", document=dict)
    def verb() -> dict[str, Any]:
        return {"verdict": "better"}

    command = LoggedCommand(["analyze", "--require", "better"], 5.0)
    assert command.answer(verb) == {"verdict": "better"}
    command.add({"required": True})
    assert not log_of(project), "a command is one line, when it ends"
    command.write(3)
    [entry] = log_of(project)
    assert entry["result"] == {"verdict": "better", "required": True} and (entry["exit"], entry["at"]) == (3, 5.0)


# Claims


def results_of(folder: Path) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = json.loads((folder / "report/headlines.json").read_text())["results"]
    return results


def bundled(project: Path, name: str) -> Path:
    terms = fairtrial.BundleTerms(charts=False)
    path = fairtrial.bundle(project / "artifact.yaml", zipped=False, output=project.parent / name, terms=terms).path
    assert path is not None
    return path


def checks_of(folder: Path) -> dict[str, str]:
    found = fairtrial.verify_bundle(folder)
    assert found.intact, found.mismatches
    return {check.name: check.detail for check in found.checks}


@pytest.fixture
def lab(with_data: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project in a folder of its own, whose store has the data."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "artifact.yaml").write_text(ARTIFACT)
    monkeypatch.chdir(folder)
    return folder


def widths() -> None:
    """A sweep whose runs say on what device they computed, so that they have a price."""
    options = {"data": "digits", "steps": 5, "batch_size": 64, "eval_every": 0, "checkpoint_every": 0}
    fairtrial.sweep(
        "classify", ["width=4,8"], options=options, terms=LabConfig(runs=2, study="cups", jobs=1, stack=False)
    )


def test_what_python_asks_is_a_claim_of_the_bundle_and_is_computed_again(lab: Path) -> None:
    widths()
    fairtrial.cost_performance(Source(study="cups"), gpu="t4")
    limits = Constraints(max_cost=1.0, min_accuracy=0.01)
    for gpu in ("t4", "any", "a100-80gb"):
        fairtrial.recommend(Source(study="cups"), limits, gpu=gpu)
    folder = bundled(lab, "crate")
    asked = [(each["asked"]["command"], each["asked"].get("gpu")) for each in results_of(folder)]
    assert asked == [
        ("sweep", None), ("cost-performance", "t4"), ("recommend", "t4"), ("recommend", "any"),
        ("recommend", "a100-80gb"),
    ]  # fmt: skip
    checks = checks_of(folder)
    for name in ("sweep of cups", "cost-performance of cups", "recommend of cups", "headline numbers of cups"):
        assert "recomputed from the raw series" in checks[name]


def test_a_claim_of_python_that_is_changed_is_found(lab: Path) -> None:
    swept()
    folder = bundled(lab, "crate")
    headlines = json.loads((folder / "report/headlines.json").read_text())
    headlines["results"][0]["numbers"]["results"][0]["accuracy"] += 0.01
    (folder / "report/headlines.json").write_text(json.dumps(headlines))
    assert "sweep of cups" in [check.name for check in fairtrial.verify_bundle(folder).mismatches]


def test_what_was_asked_is_read_from_results_and_never_from_the_words(lab: Path, cli: Cli) -> None:
    """Options may come from a file, as here the card, and Python has no command line at all."""
    widths()
    (lab / "card.yaml").write_text("gpu: t4\n")
    assert cli("recommend", "cups", "--max-cost", "1", "--config", "card.yaml").code == 0
    assert cli("recommend", "cups", "--max-cost", "0.000000000001", "--gpu", "l4").code == 3, "nothing is feasible"
    before = results_of(bundled(lab, "before"))
    assert [each["asked"].get("gpu") for each in before] == [None, "t4", "l4"]
    log = lab / "artifact.journal.jsonl"
    lines = [{**entry, "command": entry["command"][:1]} for entry in log_of(lab)]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert results_of(bundled(lab, "after")) == before


@pytest.mark.parametrize("verb", ["compare", "ablation"])
def test_a_laboratory_verb_of_python_is_logged_and_its_study_claimed(lab: Path, cli: Cli, verb: str) -> None:
    small = {"teacher_steps": 4, "teacher_width": 4, "steps": 4, "eval_every": 0, "checkpoint_every": 0, "labels": 100,
             "student_width": 4}  # fmt: skip
    words = [word for name, value in small.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    terms = LabConfig(runs=2, study="kd", jobs=1)
    if verb == "compare":
        fairtrial.compare_strategies(["kd"], options=small, terms=terms)
        shell = ["compare", "--strategies", "kd"]
    else:
        fairtrial.ablation(["temperature"], options=small, terms=terms)
        shell = ["ablation", "--components", "temperature"]
    [python] = log_of(lab)
    assert python["command"][0] == verb and python["study"] == "kd"
    assert "recomputed from the raw series" in checks_of(bundled(lab, "crate"))["headline numbers of kd"]
    assert cli(*shell, *words, "--runs", "2", "--study", "kd", "--jobs", "1").code == 0
    assert log_of(lab)[-1]["result"] == python["result"]
