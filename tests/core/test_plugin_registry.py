"""One registry of plug-ins: names without imports, and one sentence for whatever is wrong with one."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fairtrial.core.errors import UserError
from fairtrial.core.plugin_registry import (
    BUILT_IN_ONLY,
    COMMANDS,
    KINDS,
    METHODS,
    READERS,
    RECIPES,
    PluginKind,
    load_plugin,
    plugin_names,
    plugin_offers,
    take_ignored,
)
from fairtrial.core.registry import load_recipe, recipe_names
from fairtrial.stats.adjustments import JointLimit
from tests.conftest import Answer

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a package with one entry point onto the path, as pip would."""
    count = 0

    def add(group: str, name: str, source: str, *, package: str = "some-package", attribute: str = "") -> None:
        nonlocal count
        count += 1
        folder = tmp_path / f"site-{count}"
        module = f"plugin_{package.replace('-', '_')}_{abs(hash(str(folder)))}"
        metadata = folder / f"{package.replace('-', '_')}-1.5.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "entry_points.txt").write_text(
            f"[console_scripts]\nx = y:z\n\n[{group}]\n{name} = {module}{attribute}\n"
        )
        (folder / f"{module}.py").write_text(source)
        monkeypatch.syspath_prepend(folder)

    take_ignored()
    return add


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.noun)
def test_every_built_in_plugin_keeps_the_contract_of_its_kind(kind: PluginKind) -> None:
    for name, reference in kind.built_in.items():
        plugin = load_plugin(kind, name)
        if kind.contract is None:
            assert plugin.__name__ == reference
        else:
            module, _, contract = kind.contract.partition(":")
            assert isinstance(plugin, (getattr(importlib.import_module(module), contract), JointLimit)), name


def test_names_are_read_without_importing_anything(install: Install) -> None:
    install("fairtrial.methods", "loud", "raise RuntimeError('imported')")
    assert "loud" in plugin_names(METHODS)[len(METHODS.built_in) :]
    assert "some-package" in {offer.package for offer in plugin_offers(METHODS)}


def test_the_names_are_those_that_importlib_finds(install: Install) -> None:
    from importlib.metadata import entry_points

    install("fairtrial.readers", "one", "X = 1", attribute=":X")
    install("fairtrial.readers", "two", "X = 1", attribute=":X [extra]", package="Other_Package")
    theirs = [(point.name, point.module) for point in entry_points(group="fairtrial.readers")]
    ours = [(offer.name, offer.reference.partition(":")[0]) for offer in plugin_offers(READERS)]
    assert sorted(ours) == sorted(theirs)
    assert {"one", "two"} <= {name for name, _ in ours}  # and what else is installed here


def test_the_environment_can_switch_off_plugins_of_other_packages(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("fairtrial.methods", "extra", "X = 1")
    monkeypatch.setenv(BUILT_IN_ONLY, "1")
    assert plugin_names(METHODS) == list(METHODS.built_in)
    with pytest.raises(UserError, match="unknown method 'extra'"):
        load_plugin(METHODS, "extra")


def test_a_package_that_lies_in_two_folders_is_one(install: Install) -> None:
    install("fairtrial.methods", "twice", "X = 1")
    install("fairtrial.methods", "twice", "X = 1")
    assert [offer.name for offer in plugin_offers(METHODS)].count("twice") == 1


@pytest.mark.parametrize(
    ("source", "attribute", "said"),
    [
        ("raise RuntimeError('no driver')", ":X", "cannot be loaded: RuntimeError: no driver"),
        ("import sys; sys.exit(3)", ":X", "cannot be loaded: SystemExit: 3"),
        ("import no_such_module", ":X", "cannot be loaded: ModuleNotFoundError: No module named 'no_such_module'"),
        ("Y = 1", ":X", "has no attribute 'X'"),
        ("X = print", ":X", "is not an instance of Method, but of builtin_function_or_method"),
        ("X = 1", "", "is not an instance of Method, but of module"),
    ],
)
def test_a_broken_plugin_is_one_sentence_that_names_its_package(
    install: Install, source: str, attribute: str, said: str
) -> None:
    install("fairtrial.methods", "odd", source, attribute=attribute)
    with pytest.raises(UserError) as caught:
        load_plugin(METHODS, "odd")
    assert caught.value.message.startswith("method 'odd' of the package some-package 1.5 cannot be ")
    assert said in caught.value.message
    assert caught.value.hint == "Update or uninstall it: pip uninstall some-package"


def test_a_plugin_with_the_name_of_a_built_in_one_is_ignored_aloud(install: Install) -> None:
    install("fairtrial.methods", "t", "raise RuntimeError('imported')")
    assert load_plugin(METHODS, "t").designs == ("paired", "unpaired")
    assert take_ignored() == [
        "method 't' of the package some-package 1.5 is ignored: its name is that of a built-in one"
    ]
    assert plugin_names(METHODS).count("t") == 1


def test_two_packages_with_one_name_are_both_named(install: Install) -> None:
    install("fairtrial.recipes", "mine", "", package="first")
    install("fairtrial.recipes", "mine", "", package="second")
    with pytest.raises(UserError, match=r"offered by the package second 1\.5 and the package first 1\.5"):
        load_recipe("mine")
    assert recipe_names().count("mine") == 1


def test_a_recipe_of_a_package_that_lacks_parts_names_the_package(install: Install) -> None:
    install("fairtrial.recipes", "half", "SUMMARY = 'x'")
    with pytest.raises(UserError, match=r"recipe 'half' of the package some-package 1\.5 is not a recipe: it does not"):
        load_recipe("half")


UNDECLARED = """
from fairtrial.plugins import LoopOptions, Metric
SUMMARY, REQUIRES, METRIC = "A bandit.", (), Metric("reward", "max")
class Options(LoopOptions):
    epsilon: float = 0.1
    arms: int = 3
def build(options, context): ...
"""
DECLARED = UNDECLARED.partition("    epsilon")[0] + "    pass\ndef build(options, context): ..."
WHY = "is not a recipe: its Options must declare epsilon, arms with option(default, help, role=…)"


def test_options_that_are_not_declared_with_option_are_one_sentence(
    install: Install, cli: Callable[..., Answer], tmp_path: Path
) -> None:
    install("fairtrial.recipes", "bandit", UNDECLARED)
    file = tmp_path / "bandit.py"
    file.write_text(UNDECLARED)
    by_name, by_file = cli("train", "bandit"), cli("train", str(file))
    assert by_name.code == by_file.code == 1
    assert f"Error: recipe 'bandit' of the package some-package 1.5 {WHY}" in " ".join(by_name.err.split())
    assert f"Error: recipe file {file} {WHY}" in " ".join(by_file.err.split())
    checks = {check["name"]: check for check in cli("doctor", "--format", "json").json["checks"]}
    assert checks["recipe bandit"]["ok"] is False and WHY in checks["recipe bandit"]["finding"]


BROKEN = [kind.group for kind in KINDS]


def test_broken_plugins_of_every_kind_leave_commands_alone(
    install: Install, cli: Callable[..., Answer], tmp_path: Path
) -> None:
    for group in BROKEN:
        install(group, "broken", "raise RuntimeError('no driver')", package=group.replace(".", "-"))
    rows = [
        f"{variant},{seed},{seed % 3 + bonus * seed}" for variant, bonus in (("a", 0), ("b", 2)) for seed in range(3, 9)
    ]
    table = tmp_path / "table.csv"
    table.write_text("variant,seed,score\n" + "\n".join(rows) + "\n")
    assert cli("runs", "list", "--quiet").code == 0
    assert "broken" in cli("--help").out
    answer = cli("analyze", "--from", str(table), "--direction", "max")
    assert answer.code == 0 and "b is better than a" in answer.out
    assert answer.err.count("Warning") == 1
    assert (
        "Warning: reader 'broken' of the package fairtrial-readers 1.5 cannot be loaded: RuntimeError: no driver; "
        in answer.err
    )


def test_a_broken_command_is_an_error_of_its_own_alone(install: Install, cli: Callable[..., Answer]) -> None:
    install("fairtrial.commands", "shout", "raise RuntimeError('no voice')")
    answer = cli("shout")
    assert answer.code == 1
    assert (
        "Error: command 'shout' of the package some-package 1.5 cannot be loaded: RuntimeError: no voice" in answer.err
    )


def test_the_doctor_lists_plugins_of_other_packages(install: Install, cli: Callable[..., Answer]) -> None:
    install("fairtrial.commands", "runs", "")
    install("fairtrial.recipes", "arm", DECLARED, package="third")
    install("fairtrial.readers", "bad", "X = 1", attribute=":X", package="other")
    checks = {check["name"]: check for check in cli("doctor", "--format", "json").json["checks"]}
    assert checks["command runs"]["finding"].endswith("is ignored: Fairtrial has one of that name")
    assert "is not an instance of Reader, but of int" in checks["reader bad"]["finding"]
    assert checks["recipe arm"]["finding"] == "A bandit. From the package third 1.5."


def test_every_command_of_the_table_has_its_file_and_every_file_its_row() -> None:
    from fairtrial.cli.app import COMMANDS as TABLE

    assert set(TABLE) == set(COMMANDS.built_in)


def test_the_recipes_are_the_files_of_their_folder() -> None:
    assert {"fake", "classify", "command"} <= set(RECIPES.built_in) and "_program" not in RECIPES.built_in


LIGHT = """
import sys
from fairtrial.core.plugin_registry import KINDS, plugin_names
names = [plugin_names(kind) for kind in KINDS]
import fairtrial.plugins
print(*sys.modules)
"""


def test_a_list_of_all_names_imports_nothing_heavy() -> None:
    paths = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
    }  # -S: .pth files of other packages may import anything
    done = subprocess.run([sys.executable, "-S", "-c", LIGHT], env=paths, capture_output=True, text=True, check=True)
    heavy = {"torch", "numpy", "scipy", "pydantic", "altair", "click", "importlib.metadata", "pathlib"}
    assert not heavy & set(done.stdout.split())
