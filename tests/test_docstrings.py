"""Every public name has a docstring with an example, and the examples are executed; `dir` and `help` list the names."""

from __future__ import annotations

import ast
import doctest
import inspect
import pydoc
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import fairtrial
from fairtrial.public_names import PUBLIC_NAMES

NAMES = [name for name in fairtrial.__all__ if name != "__version__"]
MOST_SKIPPED = 32
"""Examples that take minutes, a repository, or a background process. Their calls are checked against signatures."""


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working directory whose store has the study `demo`, which the examples refer to."""
    folder = tmp_path_factory.mktemp("examples")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("FAIRTRIAL_STORE", str(folder / "runs"))
        variants = {"base": {}, "new": {"effect": 0.1}}
        study = fairtrial.Study(study="demo", recipe="fake", variants=variants, options={"steps": 20}, seeds=4)
        fairtrial.launch(study)
        yield folder


def examples_of(name: str) -> list[doctest.Example]:
    return doctest.DocTestParser().get_examples(inspect.getdoc(getattr(fairtrial, name)) or "")


@pytest.mark.parametrize("name", NAMES)
def test_the_example_of_a_name_does_what_it_says(
    name: str, demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FAIRTRIAL_STORE", str(demo / "runs"))
    examples = examples_of(name)
    assert examples, f"{name} has no example"
    test = doctest.DocTest(examples, {"fairtrial": fairtrial}, name, None, None, None)
    runner = doctest.DocTestRunner(verbose=False)
    printed: list[str] = []
    runner.run(test, out=printed.append)
    assert not runner.failures, "".join(printed)


def test_a_skipped_example_at_least_calls_what_exists() -> None:
    skipped = [(name, each) for name in NAMES for each in examples_of(name) if each.options.get(doctest.SKIP)]
    assert len(skipped) <= MOST_SKIPPED
    for name, example in skipped:
        calls = [node for node in ast.walk(ast.parse(example.source)) if isinstance(node, ast.Call)]
        of_ours = [node for node in calls if re.fullmatch(r"fairtrial\.\w+", ast.unparse(node.func))]
        assert of_ours, name
        for node in of_ours:
            function = getattr(fairtrial, ast.unparse(node.func).removeprefix("fairtrial."))
            keywords = {each.arg: None for each in node.keywords if each.arg}
            inspect.signature(function).bind(*node.args, **keywords)


def test_dir_and_the_groups_have_every_public_name() -> None:
    grouped = [name for group in PUBLIC_NAMES.values() for name in group]
    assert len(set(grouped)) == len(grouped)
    assert set(grouped) == set(NAMES)
    assert set(fairtrial.__all__) <= set(dir(fairtrial))
    assert not [name for name in dir(fairtrial) if name.startswith("_") and name != "__version__"]


def test_help_has_a_line_for_every_public_name() -> None:
    shown = inspect.getdoc(fairtrial) or ""
    for group, names in PUBLIC_NAMES.items():
        assert group in shown
        for name, known in names.items():
            assert re.search(rf"^    {name} +{re.escape(known.purpose)}$", shown, re.MULTILINE)
            assert len(known.purpose) < 100 and known.purpose.endswith(".")


@pytest.mark.slow
def test_help_of_the_module_shows_the_groups_first() -> None:
    text = pydoc.plain(pydoc.render_doc(fairtrial))
    assert text.index("Run and record") < text.index("Compare") < text.index("CLASSES")


def test_listing_the_names_imports_nothing() -> None:
    code = "import sys, fairtrial; dir(fairtrial); fairtrial.__doc__; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {name for name in done.stdout.split() if name.startswith("fairtrial.api")}
