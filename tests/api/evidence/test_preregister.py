"""What is registered, when it is refused, and what it means for those who launch."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairtrial.api.evidence.preregister import Intent, preregister
from fairtrial.api.evidence.preregistered_analysis import analyze_by_plan
from fairtrial.api.running.launch import launch
from fairtrial.api.running.train import train
from fairtrial.core.canonical import file_hash
from fairtrial.core.errors import CheckFailed, UserError
from fairtrial.core.paths import ProjectPaths
from fairtrial.launch.policy import ExecutionPolicy
from fairtrial.plan.study import read_study
from fairtrial.recipes import fake
from fairtrial.record.environment import git_state
from fairtrial.record.store import Store
from fairtrial.record.studies import load_plan
from fairtrial.research.ledger import Ledger, read_ledger
from fairtrial.research.registration import read_registration
from fairtrial.research.seeds import LIMIT, derive_seeds
from fairtrial.research.verify import verify_registration
from tests.api.evidence.conftest import STUDY, register_study
from tests.conftest import Answer
from tests.harness import make

WORDS = {"hypothesis": "new is better", "methods": "as in the study file"}
HASH = "ab" * 32


def test_derived_seeds_are_reproducible_distinct_and_fit_everywhere() -> None:
    seeds = derive_seeds(HASH, "seeds", 200)
    assert seeds == derive_seeds(HASH, "seeds", 200) and len(set(seeds)) == 200
    assert all(0 <= seed < LIMIT for seed in seeds)
    assert seeds[:5] == derive_seeds(HASH, "seeds", 5)
    assert not set(seeds) & set(derive_seeds("ac" * 32, "seeds", 200))
    assert not set(seeds) & set(derive_seeds(HASH, "confirmation", 200))


def test_the_rule_for_derived_seeds_never_changes() -> None:
    assert derive_seeds(HASH, "seeds", 3) == [239404223, 391879274, 802660809]  # as openssl computes them


def test_two_registrations_of_one_plan_have_different_seeds(project: ProjectPaths, study: Path, store: Store) -> None:
    first = register_study(project, study, store, derive=3).registration
    second = register_study(project, study, store, derive=3, amends=first.sha256).registration
    assert not set(first.seeds) & set(second.seeds)
    assert read_registration(first.path).seeds == first.seeds


def test_the_plan_holds_every_option_resolved(project: ProjectPaths, study: Path, store: Store) -> None:
    plan = register_study(project, study, store).registration.plan
    arms = plan["study"]["arms"]
    assert arms["new"]["options"]["noise"] == 0.02 and arms["new"]["options"]["effect"] == 0.2
    assert plan["seeds"] == {"count": 3, "derived": False, "listed": [1072, 2043, 3014], "given": 3}
    assert plan["analysis"]["metrics"] == ["report_accuracy"] and plan["analysis"]["direction"] == "max"
    assert plan["analysis"]["summary"]["type"] == "last" and plan["analysis"]["sesoi"] == 0.01
    assert plan["artifact"] == {"id": "tea", "sha256": file_hash(project.artifact)}
    assert plan["code"]["versions"]["fairtrial"]


def test_nothing_is_ever_overwritten(project: ProjectPaths, study: Path, store: Store) -> None:
    before = register_study(project, study, store).registration
    kept, lines = before.path.read_bytes(), project.registrations.ledger.read_bytes()
    register_study(project, study, store, amends=before.sha256)
    assert before.path.read_bytes() == kept
    assert project.registrations.ledger.read_bytes().startswith(lines)
    assert len(read_ledger(project.registrations).entries) == 2


@pytest.mark.parametrize("place", ["study", "cell", "archive"])
def test_a_registration_after_runs_is_refused_or_late_for_ever(
    project: ProjectPaths, study: Path, store: Store, place: str
) -> None:
    """Also where the same cell was run under another name, or where the run was put away."""
    name = "adhoc" if place == "cell" else "s"
    make(store, "fake", study=name, variant="base", seed=1072, steps=20)
    if place == "archive":
        store.archive(store.paths.run("s", "base.seed1072"), "s")
        make(store, "fake", study="s", variant="base", seed=1072, steps=20)
    with pytest.raises(UserError, match="already began"):
        register_study(project, study, store)
    found = register_study(project, study, store, late=True).registration
    assert len(found.late) == (2 if place == "archive" else 1) and found.late[0]["run"].startswith(f"{name}/")
    checked = verify_registration(found.path)
    assert checked.intact and any(note.startswith("Late:") for note in checked.notes)
    assert checked.to_dict()["late"] is True


def test_other_seeds_of_another_study_are_a_pilot_not_results(project: ProjectPaths, study: Path, store: Store) -> None:
    make(store, "fake", study="pilot", variant="base", seed=5, steps=20)
    assert not register_study(project, study, store).registration.late


def test_words_alone_are_labelled_so(project: ProjectPaths, cli: Callable[..., Answer], store: Store) -> None:
    done = preregister("artifact.yaml", **WORDS, store=store.root)
    assert done.registration.plan["basis"] == "text only"
    path = str(done.registration.path)
    shown = cli("research", "verify", path, "--store", str(store.root))
    assert shown.code == 0 and "intact, signer unknown" in shown.out and "Text only" in shown.out
    refused = cli("analyze", "--plan", path, "--store", str(store.root))
    assert refused.code == 1 and "text only" in refused.err
    with pytest.raises(UserError, match="needs a study"):
        preregister("artifact.yaml", **WORDS, intent=Intent(derive=3), store=store.root)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"intent": Intent(exclusions=["wall_s >> 3"])}, "needs a study"), ({"hypothesis": " "}, "is empty"),
        ({"methods": "\udcff"}, "not valid text"), ({"anchor": "moon"}, "anchor"),
    ],
)  # fmt: skip
def test_what_cannot_be_registered_is_said_and_leaves_nothing(
    project: ProjectPaths, store: Store, changed: dict[str, Any], said: str
) -> None:
    with pytest.raises(UserError, match=said):
        preregister("artifact.yaml", **{**WORDS, **changed}, store=store.root)
    assert not project.registrations.ledger.exists()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"exclusions": ["wall_ss > 3"]}, "did you mean 'wall_s'"), ({"candidates": ["newer"]}, "unknown variant"),
        ({"exclusions": ["final.accuracy >"]}, "a value was expected"),
    ],
)  # fmt: skip
def test_a_plan_that_could_not_be_followed_is_refused(
    project: ProjectPaths, study: Path, store: Store, changed: dict[str, Any], said: str
) -> None:
    with pytest.raises(UserError, match=said):
        register_study(project, study, store, intent=changed)


def test_a_launch_takes_the_derived_seeds_and_refuses_others(
    project: ProjectPaths, study: Path, store: Store, cli: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = register_study(project, study, store, derive=2).registration
    planned = json.loads(cli("launch", str(study), "--dry-run", "--format", "json", "--store", str(store.root)).out)
    assert {row["seed"] for row in planned["runs"]} == set(found.seeds)
    launched = launch(read_study(study), store=store.root, terms=ExecutionPolicy(jobs=1))
    assert sorted({run.seed for run in launched.runs}) == sorted(found.seeds)
    assert (load_plan(store, "s") or {})["registration"] == found.sha256
    assert launched.next_commands[0].startswith("fairtrial analyze --plan ")
    for seeds in ("5", "1,2"):
        refused = cli("launch", str(study), "--seeds", seeds, "--store", str(store.root))
        assert refused.code == 1 and "is registered" in refused.err
    monkeypatch.chdir(project.root.parent)  # outside of the project the registration is named
    said = cli("launch", str(study), "--plan", str(found.path), "--seeds", "1,2", "--store", str(store.root))
    assert said.code == 1 and "is registered" in said.err


def test_a_single_run_of_a_registered_study_has_a_registered_seed_and_options(
    project: ProjectPaths, study: Path, store: Store
) -> None:
    found = register_study(project, study, store, derive=2).registration
    own: dict[str, Any] = {"study": "s", "variant": "base", "store": store.root}
    assert train("fake", {"steps": 20}, **own).run.seed == found.seeds[0]
    with pytest.raises(UserError, match="other seeds than 7"):
        train("fake", {"steps": 20}, seed=7, **own)
    with pytest.raises(UserError, match="steps 20 → 30"):
        train("fake", {"steps": 30}, seed=found.seeds[1], **own)
    assert train("fake", {"steps": 30, "label": "free"}, seed=7, study="other", store=store.root).run.seed == 7


def test_a_study_whose_options_changed_is_not_launched(project: ProjectPaths, study: Path, store: Store) -> None:
    register_study(project, study, store)
    study.write_text(study.read_text().replace("0.2", "0.3"))
    with pytest.raises(UserError, match=r"effect 0\.2 → 0\.3"):
        launch(read_study(study), store=store.root)


def test_nobody_launches_by_a_registration_that_was_changed(project: ProjectPaths, study: Path, store: Store) -> None:
    path = register_study(project, study, store).registration.path
    path.write_bytes(path.read_bytes().replace(b"new is better", b"new is bettor"))
    for plan in (None, path):
        with pytest.raises(CheckFailed, match="was changed"):
            launch(read_study(study), store=store.root, terms=ExecutionPolicy(plan=plan))


def test_an_amendment_takes_the_place_of_what_it_amends(project: ProjectPaths, study: Path, store: Store) -> None:
    first = register_study(project, study, store, derive=2).registration
    second = register_study(project, study, store, derive=2, amends=first.sha256).registration
    own: dict[str, Any] = {"study": "s", "variant": "base", "store": store.root}
    assert train("fake", {"steps": 20}, **own).run.seed == second.seeds[0]


def test_a_study_has_one_plan_at_a_time(project: ProjectPaths, study: Path, store: Store) -> None:
    first = register_study(project, study, store, derive=2).registration
    with pytest.raises(UserError, match=f"already registered as {first.sha256}"):
        register_study(project, study, store, derive=2)
    other = project.root / "other.yaml"
    other.write_text(STUDY.replace("study: s", "study: other"))
    with pytest.raises(UserError, match="is about study 's', but its amendment is about study 'other'"):
        register_study(project, other, store, amends=first.sha256)
    with pytest.raises(UserError, match="its amendment is about no study"):
        preregister(project.artifact, hypothesis="h", methods="m", amends=first.sha256, store=store.root)
    assert len(read_ledger(project.registrations).entries) == 1


def test_a_ledger_with_two_plans_of_a_study_leaves_the_choice_to_the_person(
    project: ProjectPaths, study: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that was put together from two has them."""
    register_study(project, study, store)
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "valid_for", lambda _self, _study: [])
        second = register_study(project, study, store).registration
    with pytest.raises(UserError, match="several registrations"):
        launch(read_study(study), store=store.root)
    assert launch(read_study(study), store=store.root, terms=ExecutionPolicy(plan=second.path)).made


def test_listed_seeds_cannot_follow_from_a_registration(project: ProjectPaths, study: Path, store: Store) -> None:
    study.write_text(STUDY.replace("seeds: 3", "seeds: [1, 2]"))
    with pytest.raises(UserError, match="the study already lists its seeds"):
        register_study(project, study, store, derive=2)


def test_means_and_differences_are_not_seen_before_all_runs_are_there(
    project: ProjectPaths, study: Path, store: Store
) -> None:
    plan = register_study(project, study, store).registration
    few = read_study(study).model_copy(update={"seeds": [1072, 2043]})
    begun = launch(few, store=store.root)
    assert begun.made and not begun.differences and {arm.mean for arm in begun.arms} == {None}
    assert "2 of 6 registered runs do not exist yet" in begun.cautions[0]["text"]
    whole = launch(read_study(study), store=store.root)
    assert whole.differences and all(arm.mean for arm in whole.arms)
    assert not analyze_by_plan(plan.path, store=store.root).plan.deviations


def test_a_recipe_of_ones_own_is_the_file_that_was_registered(project: ProjectPaths, store: Store) -> None:
    recipe, study = project.root / "mine.py", project.root / "mine.yaml"
    recipe.write_text(Path(fake.__file__).read_text())
    study.write_text(STUDY.replace("recipe: fake", "recipe: ./mine.py"))
    plan = register_study(project, study, store).registration
    launch(read_study(study), store=store.root)
    assert not analyze_by_plan(plan.path, store=store.root).plan.deviations
    recipe.write_text(recipe.read_text() + "\n")
    with pytest.raises(UserError, match="differs from the one in the registration of study 's'"):
        launch(read_study(study), store=store.root)


def test_words_alone_are_registered_by_command(project: ProjectPaths, cli: Callable[..., Answer]) -> None:
    done = cli("research", "preregister", "artifact.yaml", "--hypothesis", "h", "--methods", "m")
    assert done.code == 0 and "text only" in done.out
    [plan] = project.registrations.root.glob("*.json")
    assert "Text only" in cli("research", "verify", str(plan)).out


def test_a_project_is_registered_with_its_own_store_from_anywhere(
    project: ProjectPaths, study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Callable[..., Answer]
) -> None:
    monkeypatch.delenv("FAIRTRIAL_STORE", raising=False)
    plan = preregister(
        project.artifact, hypothesis="h", methods="m", intent=Intent(study=read_study(study))
    ).registration  # fmt: skip
    launch(read_study(study))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    words = ["--hypothesis", "h", "--methods", "m", "--study", str(study)]
    refused = cli("research", "preregister", str(project.artifact), *words)
    assert refused.code == 1 and "already began" in refused.err
    assert "before the first of 6 runs" in cli("research", "verify", str(plan.path)).out
    assert "as registered" in cli("analyze", "--plan", str(plan.path)).out.lower()
    assert not list(elsewhere.iterdir())


def test_nobody_launches_by_a_ledger_that_was_changed(project: ProjectPaths, study: Path, store: Store) -> None:
    register_study(project, study, store)
    ledger = project.registrations.ledger
    ledger.write_bytes(ledger.read_bytes().replace(b'"entry":1', b'"entry":2'))
    with pytest.raises(CheckFailed, match="entry 1 of the ledger"):
        launch(read_study(study), store=store.root)


def test_a_command_is_registered_and_then_takes_its_seeds(
    project: ProjectPaths, store: Store, cli: Callable[..., Answer]
) -> None:
    place = ("--store", str(store.root))
    command = "sweep fake --param effect=0,0.1 --steps 10"
    done = cli(
        "research", "preregister", "artifact.yaml", "--hypothesis", "h", "--methods", "m", "--command", command,
        "--derive-seeds", "2", "--format", "json", *place,
    )  # fmt: skip
    told = json.loads(done.out)
    assert (told["basis"], told["study"]) == ("command", "sweep-fake-effect-steps=10")
    swept = json.loads(cli(*command.split(), "--confirm", "1", "--jobs", "1", "--format", "json", *place).out)
    seeds = {int(name.rpartition("seed")[2]) for name in store_runs(store, told["study"])}
    assert seeds == set(told["seeds"])
    confirmed = {int(name.rpartition("seed")[2]) for name in store_runs(store, swept["confirmation"]["study"])}
    assert confirmed == set(derive_seeds(told["registration"], "confirmation", 1))


def store_runs(store: Store, study: str) -> list[str]:
    return [entry.name for _, entry in store.directories(study)]


@pytest.mark.parametrize("command", ["runs list", "analyze s", "launch fake", "'", "temperatur"])
def test_what_makes_no_named_study_cannot_be_registered(
    project: ProjectPaths, cli: Callable[..., Answer], command: str
) -> None:
    refused = cli(
        "research", "preregister", "artifact.yaml", "--hypothesis", "h", "--methods", "m", "--command", command
    )
    assert refused.code == 2 and "--command" in refused.err


# Anchors.


def git(*arguments: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", *who, *arguments], check=True, capture_output=True)


def test_a_git_tag_carries_the_order_as_far_as_others_have_it(
    project: ProjectPaths, study: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "a")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "a@example.org")
    with pytest.raises(UserError, match="there is no commit"):
        register_study(project, study, store, anchor="git-tag")
    assert not project.registrations.ledger.exists()
    git("init", "-q", ".")
    git("add", ".")
    git("commit", "-qm", "all")
    before = git_state(Path.cwd())
    done = register_study(project, study, store, anchor="git-tag")
    assert git_state(Path.cwd()) == before  # a registration is no change to the code
    (project.registrations.root / "code.py").write_text("pass")
    assert git_state(Path.cwd()) != before
    found = done.registration
    assert done.anchor and done.anchor["proves"].startswith("Push the tag")
    make(store, "fake", study="s", variant="base", seed=1072, steps=20)
    checked = preregister_verify(found.path, store)
    assert checked.anchored and checked.intact
    order = next(check for check in checked.checks if check.name == "order")
    assert "git tag" in order.detail and "can confirm" in order.detail
    git("tag", "-f", "-a", done.anchor["name"], "-m", "another text")
    assert "does not contain this hash" in preregister_verify(found.path, store).sentence
    git("tag", "-d", done.anchor["name"])
    gone = preregister_verify(found.path, store)
    assert gone.intact and not gone.anchored
    assert next(check for check in gone.checks if check.name == "order").detail.endswith("by the author's clock")


def preregister_verify(path: Path, store: Store, **settings: Any) -> Any:
    from fairtrial.api.evidence.preregister import verify

    return verify(path, store=store.root, **settings)


def test_a_file_proves_something_only_where_others_kept_it(
    project: ProjectPaths, study: Path, store: Store, tmp_path: Path
) -> None:
    done = register_study(project, study, store, anchor="file")
    make(store, "fake", study="s", variant="base", seed=1072, steps=20)
    found = done.registration
    here = preregister_verify(found.path, store)
    assert here.intact and not here.anchored
    assert next(check for check in here.checks if check.name == "order").detail.endswith("by the author's clock")
    assert done.anchor and "local file proves nothing" in done.anchor["proves"]
    copy = tmp_path / "copy.txt"
    copy.write_bytes(project.registrations.anchor(found.sha256).read_bytes())
    assert preregister_verify(found.path, store, published=copy).anchored
    copy.write_text("sha256 " + "0" * 64)
    assert not preregister_verify(found.path, store, published=copy).intact
    project.registrations.anchor(found.sha256).write_text("other")
    assert "was changed" in preregister_verify(found.path, store).sentence


def test_verify_ends_with_three_where_something_does_not_fit(
    project: ProjectPaths, study: Path, store: Store, cli: Callable[..., Answer]
) -> None:
    found = register_study(project, study, store).registration
    place = ("--store", str(store.root))
    told = json.loads(cli("research", "verify", str(found.path), "--format", "json", *place).out)
    assert told["result"] == "intact, signer unknown" and told["registration"] == found.sha256
    found.path.write_bytes(found.path.read_bytes().replace(b"new is better", b"new is bettor"))
    broken = cli("research", "verify", str(found.path), *place)
    assert broken.code == 3 and "not intact: the content does not match its hash" in broken.out
    assert cli("research", "verify", str(study), *place).code == 3
    assert cli("research", "verify", "nothing.json", *place).code == 1


def test_of_two_that_make_a_key_at_once_both_sign_with_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one is quicker, between the look for a key and the making of one."""
    from fairtrial.research import keys

    path, real = tmp_path / "new" / "key.pem", keys._make_key
    quicker: list[str] = []

    def with_another(place: Path) -> None:
        monkeypatch.setattr(keys, "_make_key", real)
        quicker.append(keys.load_signer(place).public)
        real(place)

    monkeypatch.setattr(keys, "_make_key", with_another)
    assert keys.load_signer(path).public == quicker[0]
    assert path.with_suffix(".pub").read_text().strip() == quicker[0]
    assert sorted(found.name for found in path.parent.iterdir()) == ["key.pem", "key.pub"]
