"""Secrets of a program reach the program and no file: neither of the store nor of the project around it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest

from fairtrial.record.store import Store
from tests.conftest import Answer
from tests.harness import edit_metadata

Cli = Callable[..., Answer]
PROGRAM = """
import json, sys
*rest, place = sys.argv[1:]
with open(place, "w") as file:
    file.write(json.dumps({"step": 1, "eval_accuracy": 0.5}) + "\\n")
with open("seen.json", "w") as file:
    json.dump(rest, file)
"""
TOKEN = "hf_" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1"
PASSWORD = "correct horse 42"
ARTIFACT = "id: demo\ntitle: Demo\ntype: dataset\nversion: 1.0.0\n"


@pytest.fixture(autouse=True)
def _clean_environment() -> Iterator[None]:
    before = dict(os.environ)
    yield
    for name in set(os.environ) - set(before):
        if name.startswith("FAIRTRIAL_SECRET_"):
            del os.environ[name]


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM)
    return str(path)


def seen(tmp_path: Path) -> list[str]:
    words: list[str] = json.loads((tmp_path / "seen.json").read_text())
    return words


def launch(cli: Cli, program: str, *words: str, options: tuple[str, ...] = (), name: str = "s") -> Answer:
    return cli(
        "launch", "command", "--base-run-name", name, "--seeds", "1", "--metrics", "{run_dir}/out.jsonl", *options,
        "--", sys.executable, program, *words, "{run_dir}/out.jsonl",
    )  # fmt: skip


def files_with(folder: Path, *secrets: str) -> list[str]:
    """Every file below a folder that holds one of the secrets; what the program itself wrote does not count."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "seen.json"]
    return [str(path) for path in files if any(secret.encode() in path.read_bytes() for secret in secrets)]


def forget() -> None:
    for name in [name for name in os.environ if name.startswith("FAIRTRIAL_SECRET_")]:
        del os.environ[name]


def test_secrets_in_the_arguments_of_a_program_reach_the_program_and_no_file(
    cli: Cli, tmp_path: Path, program: str, store: Store
) -> None:
    (tmp_path / "artifact.yaml").write_text(ARTIFACT)
    words = ["--hub-token", TOKEN, f"--password={PASSWORD}", "postgres://me:s3same@db/x", "--seed", "{seed}", "{key}"]
    done = launch(cli, program, *words, options=("--variant", "base:key=open4me", "--secret", "key"))
    assert done.code == 0, done.err
    assert seen(tmp_path) == ["--hub-token", TOKEN, f"--password={PASSWORD}", words[3], "--seed", "1072", "open4me"]
    secrets = (TOKEN, PASSWORD, "s3same", "open4me")
    assert files_with(tmp_path, *secrets) == []
    assert not any(secret in done.out + done.err for secret in secrets)
    assert (tmp_path / "artifact.journal.jsonl").exists()


def test_a_token_in_the_arguments_reaches_no_file(cli: Cli, tmp_path: Path, program: str) -> None:
    (tmp_path / "artifact.yaml").write_text(ARTIFACT)
    done = launch(cli, program, "--hub-token", TOKEN)
    assert done.code == 0, done.err
    assert seen(tmp_path) == ["--hub-token", TOKEN]
    assert files_with(tmp_path, TOKEN) == []


def test_what_was_redacted_is_told_by_name(cli: Cli, tmp_path: Path, program: str, store: Store) -> None:
    done = launch(cli, program, "--hub-token", TOKEN)
    assert "Redacted because they are secrets: hub_token" in done.err
    metadata = orjson.loads(store.paths.run("s", "default.seed1072").metadata.read_bytes())
    [caution] = [each for each in metadata["cautions"] if each["code"] == "redacted"]
    assert "hub_token" in caution["text"]
    assert "FAIRTRIAL_SECRET_HUB_TOKEN" in caution["remedy"]
    assert "{env:FAIRTRIAL_SECRET_HUB_TOKEN}" in metadata["options"]["argv"]


def test_another_token_is_not_another_run(cli: Cli, program: str, store: Store) -> None:
    assert launch(cli, program, "--hub-token", TOKEN).code == 0
    before = store.paths.run("s", "default.seed1072").metadata.read_bytes()
    assert launch(cli, program, "--hub-token", TOKEN[::-1].replace("_fh", "") + "9").code == 0
    assert store.paths.run("s", "default.seed1072").metadata.read_bytes() == before


def test_a_run_is_resumed_only_with_its_secret(cli: Cli, tmp_path: Path, program: str, store: Store) -> None:
    assert launch(cli, program, "--hub-token", TOKEN).code == 0
    paths = store.paths.run("s", "default.seed1072")
    edit_metadata(paths, status="interrupted")
    forget()
    refused = cli("train", "--resume", "s/default.seed1072")
    assert refused.code == 1
    assert "the secret 'hub_token' was not recorded" in refused.err
    assert "FAIRTRIAL_SECRET_HUB_TOKEN" in refused.err
    os.environ["FAIRTRIAL_SECRET_HUB_TOKEN"] = TOKEN + "2"
    (tmp_path / "seen.json").unlink()
    assert cli("train", "--resume", "s/default.seed1072").code == 0
    assert seen(tmp_path)[1] == TOKEN + "2"


def test_a_run_that_an_older_version_began_with_its_secret_goes_on(
    cli: Cli, tmp_path: Path, program: str, store: Store
) -> None:
    """That version recorded the value, so that its fingerprint rests on it."""
    from fairtrial.core.specs import RunSpec

    assert launch(cli, program, "--hub-token", TOKEN).code == 0
    paths = store.paths.run("s", "default.seed1072")
    old = orjson.loads(paths.metadata.read_bytes().replace(b"{env:FAIRTRIAL_SECRET_HUB_TOKEN}", TOKEN.encode()))
    spec = RunSpec("command", old["options"], old["identity"], 1072)
    edit_metadata(paths, **{**old, "status": "interrupted", "fingerprint": spec.fingerprint})
    (tmp_path / "seen.json").unlink()
    again = launch(cli, program, "--hub-token", TOKEN)
    assert again.code == 0, again.err
    assert seen(tmp_path)[1] == TOKEN
    assert orjson.loads(paths.metadata.read_bytes())["fingerprint"] == spec.fingerprint


def test_a_value_from_the_environment_is_filled_in_the_job_and_never_recorded(
    cli: Cli, tmp_path: Path, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_LOGIN", "zebra-crossing")
    done = launch(cli, program, "--login={env:MY_LOGIN}", "{{env:MY_LOGIN}}", "{who}", options=(
        "--variant", "base:who={env:MY_LOGIN}",
    ))  # fmt: skip
    assert done.code == 0, done.err
    assert seen(tmp_path) == ["--login=zebra-crossing", "{env:MY_LOGIN}", "zebra-crossing"]
    assert files_with(tmp_path, "zebra-crossing") == []


def test_a_missing_variable_is_one_sentence_before_anything_starts(cli: Cli, program: str, store: Store) -> None:
    refused = launch(cli, program, "--login", "{env:NOT_SET_ANYWHERE}")
    assert refused.code == 1
    assert "the environment variable NOT_SET_ANYWHERE is not set" in refused.err
    assert not (store.root / "s").exists()


def test_a_detached_launch_has_its_secrets(cli: Cli, tmp_path: Path, program: str) -> None:
    from tests.harness import eventually

    left = launch(cli, program, "--hub-token", TOKEN, options=("--detach",))
    assert left.code == 0, left.err
    eventually(lambda: (tmp_path / "seen.json").exists() and "completed" in cli("runs", "list").out)
    assert seen(tmp_path)[1] == TOKEN
    assert files_with(tmp_path / "store", TOKEN) == []


def test_a_name_that_is_nowhere_is_refused(cli: Cli, program: str) -> None:
    refused = launch(cli, program, "{key}", options=("--variant", "base:key=1", "--secret", "kye"))
    assert refused.code == 1
    assert "did you mean 'key'" in refused.err


def test_a_study_file_may_name_its_secrets(cli: Cli, tmp_path: Path, program: str) -> None:
    place = "{run_dir}/out.jsonl"
    (tmp_path / "study.yaml").write_text(json.dumps({
        "study": "f", "recipe": "command", "seeds": 1, "secrets": ["site"],
        "options": {"argv": [sys.executable, program, "{site}", place], "metrics": place},
        "variants": {"base": {"site": "north-pole"}},
    }))  # fmt: skip
    done = cli("launch", "study.yaml")
    assert done.code == 0, done.err
    assert seen(tmp_path) == ["north-pole"]
    assert files_with(tmp_path / "store", "north-pole") == []
    assert orjson.loads((tmp_path / "store" / "f" / "study.json").read_bytes())["secrets"] == ["site"]


def test_the_reason_of_a_failure_quotes_no_secret(cli: Cli, tmp_path: Path) -> None:
    done = cli(
        "launch", "command", "--base-run-name", "s", "--seeds", "1", "--secret", "--path", "--", f"/nowhere/{TOKEN}",
        "--path", "north-pole",
    )  # fmt: skip
    assert done.code == 4
    assert "not found" in done.out
    assert files_with(tmp_path, TOKEN, "north-pole") == []
    assert TOKEN not in done.out + done.err


OWN_RECIPE = """
import json
from pathlib import Path
from typing import Any
from fairtrial.core.options import LoopOptions, Role, option

SUMMARY = "keeps what it was given"
REQUIRES = ()
EXTRA = None
METRIC = None

class Options(LoopOptions):
    url: str = option("", "where to", role=Role.TRAINING)

class Trainable:
    def __init__(self, url: str) -> None:
        Path("seen.json").write_text(json.dumps([url]))
    def step(self, step: int, watch: Any) -> dict[str, float]:
        return {"loss": 1.0}
    def evaluate(self, split: str) -> dict[str, float]:
        return {"accuracy": 0.5}
    def state(self) -> dict[str, Any]:
        return {}
    def load_state(self, state: Any) -> None:
        pass

def build(options: Options, setting: Any) -> Trainable:
    return Trainable(options.url)
"""


def test_resolved_options_hold_no_secret() -> None:
    """Sweeps and other commands resolve options without a study file around them."""
    from fairtrial.core.registry import load_recipe
    from fairtrial.plan.cells import resolve

    options = resolve(load_recipe("command"), {"argv": ["prog", "--hub-token", TOKEN]}, where="test")
    assert TOKEN not in str(options.to_dict())


def test_a_recipe_of_a_person_gets_its_secret_and_no_file_does(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN_RECIPE)
    done = cli("train", "./mine.py", "--steps", "2", "--url", "https://me:s3same@host/x")
    assert done.code == 0, done.err
    assert seen(tmp_path) == ["https://me:s3same@host/x"]
    assert files_with(tmp_path, "s3same") == []
    assert not [path for path in (tmp_path / "store").rglob("*") if "s3same" in path.name]


def test_a_reason_that_a_recipe_gives_quotes_no_secret(cli: Cli, tmp_path: Path) -> None:
    """What a library raises often quotes what it was given; so does the trace that is left in the log."""
    failing = OWN_RECIPE.replace("return Trainable(options.url)", "raise RuntimeError(f'cannot reach {options.url}')")
    (tmp_path / "mine.py").write_text(failing)
    done = cli("train", "./mine.py", "--steps", "2", "--url", "https://me:s3same@host/x")
    assert done.code == 4
    assert "cannot reach https://me:(redacted)@host/x" in done.err
    assert files_with(tmp_path, "s3same") == []
    assert "RuntimeError" in next((tmp_path / "store").rglob("log.txt")).read_text()


def test_the_config_of_a_script_is_recorded_without_secrets(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    import fairtrial

    config = {"lr": 0.1, "hub": {"token": TOKEN}, "site": "north-pole"}
    with fairtrial.run(seed=1, config=config, study="s", variant="v", secrets=["site"]) as run:
        run.log(1, loss=1.0)
    assert run.metadata["options"] == {"lr": 0.1, "hub": {"token": "(redacted)"}, "site": "(redacted)"}
    assert files_with(tmp_path, TOKEN, "north-pole") == []
    assert "token" in capfd.readouterr().err
    assert [caution["code"] for caution in run.metadata["cautions"]] == ["redacted config"]


def test_every_launcher_is_told_which_variables_its_jobs_need(monkeypatch: pytest.MonkeyPatch) -> None:
    from fairtrial.launch.contract import LaunchRequest
    from fairtrial.launch.ray_cluster import _environment
    from fairtrial.launch.sky_tasks import Options, launch_words

    monkeypatch.setenv("HF_TOKEN", TOKEN)
    request = LaunchRequest("s", "s3://b/x", "/home", Options(secrets=("AWS_PROFILE",)), environment=["HF_TOKEN"])
    assert _environment(request)["HF_TOKEN"] == TOKEN
    words = launch_words(request, "task.yaml")
    assert words[4:8] == ["--secret", "AWS_PROFILE", "--secret", "HF_TOKEN"]
    assert TOKEN not in words
