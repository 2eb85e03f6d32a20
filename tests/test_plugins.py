"""What plug-in authors are promised: the API, the example package through real command lines, and the contract suites."""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import fairtrial.plugins
from fairtrial import testing
from fairtrial.core.plugin_registry import ADJUSTMENTS, FORMATS, KINDS, METHODS, SUMMARIES, load_plugin
from fairtrial.core.readers import ImportedRun, Reader
from fairtrial.launch.contract import LaunchRequest
from fairtrial.record.tables import TABLE_READER
from fairtrial.stats.adjustments import Adjustment
from fairtrial.stats.inference import Method
from fairtrial.stats.student import infer_t
from fairtrial.stats.summaries import SummaryType

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples" / "plugins"
NAMES = fairtrial.plugins.__all__


# The API


def test_the_api_has_at_most_forty_names() -> None:
    assert len(NAMES) == len(set(NAMES)) <= 40
    assert set(NAMES) == set(fairtrial.plugins._HOMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_the_api_is_documented(name: str) -> None:
    found = getattr(fairtrial.plugins, name)
    described = (fairtrial.plugins.__doc__ or "").split("For every kind:")[1]
    assert re.search(rf"^    ([A-Za-z_]+, )*{name}\b", described, re.MULTILINE)
    assert inspect.getdoc(found) and not (inspect.getdoc(found) or "").startswith(f"{name}("), "it has no docstring"


def used_by_built_ins() -> set[str]:
    """Names that recipes and launchers take from `fairtrial.plugins`, and others from where these are defined."""
    homes = {reference: name for name, reference in fairtrial.plugins._HOMES.items()}
    used = set()
    for file in (ROOT / "src/fairtrial").rglob("*.py"):
        if file.name == "plugins.py" or "testing" in file.parts:
            continue
        module = ".".join(file.relative_to(ROOT / "src").with_suffix("").parts)
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "fairtrial.plugins":
                used |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                references = [
                    str(node.module),
                    *(f"{node.module}{mark}{each.name}" for each in node.names for mark in ":."),
                ]
                used |= {homes[each] for each in references if each in homes}
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):  # made where it is defined
                used |= {name for name in [homes.get(f"{module}:{node.func.id}")] if name}
    return used


@pytest.mark.slow
def test_every_name_of_the_api_is_used_by_a_built_in() -> None:
    assert set(NAMES) - used_by_built_ins() == set()


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Brain'"):
        fairtrial.plugins.Brain  # noqa: B018


# The example package


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example package, as pip installs it: without a network, and without building anything in the source tree."""
    folder = tmp_path_factory.mktemp("plugins")
    shutil.copytree(EXAMPLES, folder / "source", ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
    options = ["--quiet", "--no-build-isolation", "--no-deps", "--no-index", "--disable-pip-version-check"]
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        *options,
        "--target",
        str(folder / "site"),
        str(folder / "source"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "site"


def call(installed: Path, *arguments: str) -> str:
    """A real command line, with the package installed."""
    path = os.pathsep.join([str(ROOT / "src"), str(installed)])
    done = subprocess.run(
        [sys.executable, "-m", "fairtrial", *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    return done.stdout


@pytest.mark.slow
def test_generated_pages_do_not_mention_installed_plugins(installed: Path) -> None:
    program = "from tools.make_docs import cli_page, schema_pages; print(cli_page(), *schema_pages())"
    path = os.pathsep.join([str(ROOT), str(ROOT / "src"), str(installed)])
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "wilcoxon" in done.stdout
    assert not {"bonferroni", "second_half", "bowl", "peek"} & set(re.findall(r"\w+", done.stdout))


def test_the_example_package_has_one_plugin_of_each_kind_and_imports_nothing_else_of_ours() -> None:
    import tomllib

    project = tomllib.loads((EXAMPLES / "pyproject.toml").read_text())["project"]
    assert {kind.group for kind in KINDS} == set(project["entry-points"])
    files = {
        point.partition(":")[0].rpartition(".")[2]
        for group in project["entry-points"].values()
        for point in group.values()
    }
    assert len(files) == len(KINDS), "each is one file"
    for file in files:
        tree = ast.parse((EXAMPLES / "fairtrial_examples" / f"{file}.py").read_text())
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        modules = {node.module or "" if isinstance(node, ast.ImportFrom) else node.names[0].name for node in imports}
        assert {each for each in modules if each.startswith("fairtrial")} == {"fairtrial.plugins"}, file


STUDY = """
study: bowls
recipe: bowl
options: {steps: 40, log_every: 4, eval_every: 20}
variants: {plain: {}, half: {momentum: 0.5}, most: {momentum: 0.9}}
seeds: 3
metric: train_height
summary: {type: second_half}
"""


@pytest.mark.slow
def test_recipe_launcher_summary_adjustment_chart_and_format_of_a_package(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(STUDY)
    call(installed, "launch", "study.yaml", "--on", "processes", "--quiet")
    out = call(installed, "analyze", "bowls", "--family", "bonferroni", "--plots", "plots", "--format", "json")
    found = json.loads(out)
    assert found["summary"]["text"].startswith("mean of the second half")
    assert [each["adjustment"] for each in found["comparisons"]] == ["bonferroni"] * 2
    for each in found["comparisons"]:
        assert each["adjusted_p"] == pytest.approx(min(1.0, 2 * each["p_value"]))
    assert (tmp_path / "plots" / "effects.png").read_bytes().startswith(b"\x89PNG")
    call(installed, "runs", "list", "--output", "runs.html")
    assert (tmp_path / "runs.html").read_text().count("<tr>") == 10


@pytest.mark.slow
def test_reader_method_and_command_of_a_package(installed: Path, tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    for variant, base in (("base", 0.5), ("new", 0.2)):
        for seed in range(8):
            lines = [f"step {step}: loss {base + draw.normal() / 50:.4f}\n" for step in (10, 20)]
            (tmp_path / f"{variant}_seed{seed}.trainlog").write_text("".join(lines))
    logs = sorted(str(path) for path in tmp_path.glob("*.trainlog"))
    out = call(installed, "analyze", "--from", *logs, "--method", "sign", "--format", "json")
    [comparison] = json.loads(out)["comparisons"]
    assert (comparison["method"], comparison["verdict"], comparison["n_control"]) == ("sign test", "better", 8)
    assert comparison["p_value"] == pytest.approx(2 / 2**8)
    rows = json.loads(call(installed, "peek", *logs[:2], "--format", "json"))["runs"]
    assert [(row["variant"], row["seed"]) for row in rows] == [("base", "0"), ("base", "1")]


@pytest.mark.slow
def test_help_names_the_commands_of_other_packages_without_importing_them(installed: Path) -> None:
    code = "import sys; from fairtrial.cli.app import run; run(['--help']); print(*sys.modules, file=sys.stderr)"
    path = os.pathsep.join([str(ROOT / "src"), str(installed)])
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    assert "Commands of other packages:\n  peek  From the package fairtrial-examples 0.1.0.\n" in done.stdout
    assert not [name for name in done.stderr.split() if name.startswith("fairtrial_examples")]


# The contract suites


def example(name: str) -> ModuleType:
    """A module of the example package, from its source."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        return __import__(f"fairtrial_examples.{name}", fromlist=[name])
    finally:
        sys.path.remove(str(EXAMPLES))


def test_the_recipe_of_the_package_keeps_the_contract() -> None:
    case = testing.RecipeCase(str(EXAMPLES / "fairtrial_examples" / "recipe.py"), {"steps": 20, "eval_every": 5})
    for check in testing.RECIPE_CHECKS:
        check(case)


@pytest.mark.slow
@pytest.mark.parametrize(
    "check", [testing.LAUNCHER_CHECKS[0], testing.PROCESS_CHECKS[-1]], ids=lambda each: each.__name__
)
def test_the_launcher_of_the_package_keeps_the_contract(check: Callable[..., None], tmp_path: Path) -> None:
    """The first and the hardest rule; it keeps the others too, which take half a minute."""
    launcher, home, store = example("launcher"), tmp_path / "home", tmp_path / "store"
    home.mkdir()
    request = LaunchRequest("s", str(store), str(home), launcher.Options(), cells=5)
    check(lambda: launcher.open_launcher(request), store)


@pytest.mark.parametrize("name", [*SUMMARIES.built_in, "second_half"])
def test_every_summary_keeps_the_contract(name: str) -> None:
    if name == "second_half":
        testing.check_summary(example("summary").SECOND_HALF)
    elif name != "time_to":  # that one has no number without a threshold
        testing.check_summary(load_plugin(SUMMARIES, name))


@pytest.mark.parametrize("name", [*METHODS.built_in, "sign"])
def test_every_method_keeps_the_contract(name: str) -> None:
    testing.check_method(example("method").SIGN if name == "sign" else load_plugin(METHODS, name))


@pytest.mark.parametrize("name", ["holm", "bh", "bonferroni"])
def test_every_adjustment_keeps_the_contract(name: str) -> None:
    testing.check_adjustment(
        example("adjustment").BONFERRONI if name == "bonferroni" else load_plugin(ADJUSTMENTS, name)
    )


def test_every_format_keeps_the_contract() -> None:
    rows = [{"name": "a<b", "value": 1.5}, {"name": "c", "value": None}]
    for name in FORMATS.built_in:
        if name != "text":
            testing.check_format(load_plugin(FORMATS, name), {"rows": rows}, rows)
    assert "a&lt;b" in testing.check_format(example("format").HTML, {"rows": rows}, rows)


def test_every_reader_keeps_the_contract(tmp_path: Path) -> None:
    log, table = tmp_path / "base_seed3.trainlog", tmp_path / "table.csv"
    log.write_text("step 10: loss 0.5\nstep 20: loss 0.4\n")
    table.write_text("variant,seed,step,loss\na,1,10,0.5\na,1,20,0.4\n")
    [run] = testing.check_reader(example("reader").TRAIN_LOG, log, table)
    assert (run.variant, run.seed, run.series["loss"]) == ("base", "3", ([10, 20], [0.5, 0.4]))
    assert len(list(TABLE_READER.read(table))) == 1


def test_every_chart_keeps_the_contract(tmp_path: Path) -> None:
    from fairtrial import analyze
    from fairtrial.api.comparing import plots
    from fairtrial.api.comparing.analysis import Question

    rows = [f"{v},{s},{s % 3 + b * s}" for v, b in (("a", 0), ("b", 1), ("c", 2)) for s in range(6)]
    (tmp_path / "t.csv").write_text("variant,seed,score\n" + "\n".join(rows) + "\n")
    analysis = analyze(source=tmp_path / "t.csv", question=Question(direction="max"))
    assert testing.check_chart(example("chart").EFFECTS, analysis) == ["effects"]
    assert testing.check_chart(plots.FOREST, analysis) == ["forest"]


class Wrong(Reader):
    def recognize(self, path: Path) -> str | None:
        return "anything"

    def read(self, path: Path) -> Any:
        yield ImportedRun("r", {"loss": ([1, 2], [0.5])})


@pytest.mark.parametrize(
    ("check", "wrong", "said"),
    [
        (
            "check_summary",
            SummaryType(lambda *_: float(np.random.default_rng().random()), "x", "x"),
            "two different numbers",
        ),
        ("check_summary", SummaryType(lambda *_: 1.0, "range", "x"), "{metric}"),
        ("check_method", Method(lambda a, _n, _g: infer_t(a).negated()), "second − first"),
        ("check_adjustment", Adjustment(list, lambda p, alpha: [alpha / len(p)] * len(p)), "disagree"),
        ("check_adjustment", Adjustment(lambda p: [x / 2 for x in p], lambda p, a: [a] * len(p)), "at least"),
    ],
)
def test_a_plugin_that_breaks_its_contract_is_noticed(check: str, wrong: Any, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        getattr(testing, check)(wrong)


def test_a_reader_that_breaks_its_contract_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="not its own"):
        testing.check_reader(Wrong(), tmp_path, tmp_path)
