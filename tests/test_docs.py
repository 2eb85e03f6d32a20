"""Documentation is generated or executed: it cannot say what the program does not do."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fairtrial.core import cautions
from fairtrial.core.metadata_schema import Metadata
from fairtrial.core.specs import RunSpec
from fairtrial.record.metadata import REQUIRED, new_metadata
from fairtrial.record.store import Store
from tests.conftest import Answer
from tests.harness import make

ROOT = Path(__file__).parent.parent
NOT_YET = ("decide", "gate", "dashboard")


@pytest.mark.slow
def test_generated_pages_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "tools/make_docs.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("script", ["api_tour.py", "choose.py"])
def test_examples_run(script: str, with_data: Store, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / script)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_an_example_of_many_launches_runs(with_data: Store, capfd: pytest.CaptureFixture[str]) -> None:
    """In this process, whose launches need not load torch again; `api_tour.py` launches from a process of its own."""
    runpy.run_path(str(ROOT / "examples" / "sweep.py"), run_name="__main__")
    said = capfd.readouterr().out
    assert "best temperature" in said and "best learning rate" in said and "without temperature: " in said


def blocks_of(page: str) -> list[str]:
    blocks: list[str] = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)
    assert blocks
    return blocks


def test_python_in_the_page_of_the_laboratory_runs(with_data: Store, tmp_path: Path) -> None:
    """In this process, because it launches; it imports nothing but `fairtrial`."""
    for block in blocks_of("lab.md"):
        assert re.findall(r"^(?:import|from) .*", block, re.MULTILINE) == ["import fairtrial"]
        (tmp_path / "block.py").write_text(block)
        runpy.run_path(str(tmp_path / "block.py"), run_name="__main__")


@pytest.mark.parametrize("page", ["stats.md", "costs.md", "sync.md", "plugins.md", "howto/python.md"])
def test_python_in_the_pages_runs(with_data: Store, tmp_path: Path, page: str) -> None:
    """What these pages show can be copied and run."""
    paths = [str(ROOT / "examples" / "plugins"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    for block in blocks_of(page):
        done = subprocess.run(
            [sys.executable, "-c", block], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


def test_commands_in_the_readme_are_understood(cli: Callable[..., Answer]) -> None:
    """Every `fairtrial …` line of the README parses: a renamed option cannot stay there unnoticed."""
    blocks = re.findall(r"```(?:sh|bash|console|shell)?\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    text = "\n".join(blocks).replace("\\\n", " ")
    lines = [line.strip().removeprefix("$ ") for line in text.splitlines()]
    commands = [line for line in lines if line.startswith("fairtrial ")]
    assert len(commands) >= 5
    for line in commands:
        words = line.split("#")[0].split(" -- ")[0].split()[1:]
        flags = [word.partition("=")[0] for word in words if word.startswith("--")]
        path = [word for word in words[:2] if not word.startswith("-")]
        if path[0] == "launch" and path[1].endswith(".yaml"):
            path[1] = "fake"
        if path[-1].endswith(".py"):
            path[-1] = "fake"
        shown = cli(
            *path[: 2 if path[0] in ("train", "bench", "launch", "runs", "sweep", "profile", "research") else 1],
            "--help",
        ).out
        assert all(flag in shown for flag in flags), line


def test_no_page_names_a_command_that_does_not_exist() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    for page in pages:
        found = re.findall(r"fairtrial ([a-z-]+)", page.read_text())
        assert not set(found) & set(NOT_YET), page.name


def test_recorded_metadata_fit_the_published_schema(store: Store) -> None:
    make(store, "fake", steps=5)
    make(store, "fake", seed=2, steps=5, fail_at=2)
    make(store, "fake", seed=3, steps=20, diverge_at=10)
    for _, entry in store.directories():
        Metadata.model_validate(json.loads((Path(entry.path) / "metadata.json").read_text()))


def test_what_readers_require_is_what_is_written() -> None:
    spec = RunSpec(recipe="fake", options={}, identity={}, seed=1)
    assert new_metadata(spec, {}, synthetic=True).keys() == REQUIRED


def test_metadata_of_a_real_training_fit_it_too(with_data: Store) -> None:
    options = {"steps": 10, "teacher_steps": 5, "teacher_width": 4, "labels": 200}
    make(with_data, "distill", **options)
    for _, entry in with_data.directories():
        metadata = Metadata.model_validate(json.loads((Path(entry.path) / "metadata.json").read_text()))
        assert metadata.timings.wall_s is not None


@pytest.mark.slow
def test_every_caution_is_used_and_has_a_remedy() -> None:
    sources = [path.read_text() for path in (ROOT / "src").rglob("*.py") if path.name != "cautions.py"]
    words = {word for source in sources for word in re.findall(r"\w+", source)}
    for name, value in vars(cautions).items():
        if isinstance(value, cautions.Caution):
            assert name in words, f"{name} is never given"
            assert value.remedy.endswith(".")
    assert len(cautions.ALL) == sum(isinstance(value, cautions.Caution) for value in vars(cautions).values())


def test_the_first_command_of_the_readme_prints_what_it_shows(cli: Callable[..., Answer], tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text()
    [shown] = re.findall(r"\$ fairtrial analyze --from examples/results\.csv.*\n(.*)\n```", text)
    answer = cli("analyze", "--from", str(ROOT / "examples" / "results.csv"), "--output", str(tmp_path / "verdict.png"))
    assert answer.code == 0 and answer.out.splitlines()[0] == shown
    assert (tmp_path / "verdict.png").read_bytes().startswith(b"\x89PNG")
