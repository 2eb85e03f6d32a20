"""The house has rooms, and rooms do not import each other."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from fairtrial.core.plugin_registry import LAUNCHERS, RECIPES
from tests.path_lint import built_paths

ROOT = Path(__file__).parent.parent


def lint_imports(source: Path) -> subprocess.CompletedProcess[str]:
    """import-linter over a source tree, with the contracts of pyproject.toml."""
    code = "from importlinter.cli import lint_imports_command as lint; lint(['--no-cache'])"
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=source.parent,
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "src"


def test_rooms_keep_to_themselves() -> None:
    found = lint_imports(ROOT / "src")
    assert found.returncode == 0, found.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("record/store.py", "from fairtrial.launch.local import LocalLauncher"),
        ("core/paths.py", "import fairtrial.record.store"),
        ("recipes/fake.py", "def f():\n    from fairtrial.train.loop import train"),
        ("train/loop.py", "from fairtrial.jobs.run_session import run_cell"),
        ("jobs/run_session.py", "import rich"),
        ("recipes/fake.py", "from fairtrial.core.errors import UserError"),
        ("recipes/command.py", "def f():\n    import fairtrial.core.paths"),
        ("launch/slurm.py", "from fairtrial.jobs.mailbox import FolderMailbox"),
        ("core/paths.py", "from fairtrial.plugins import Metric"),
    ],
)
def test_an_import_across_rooms_is_noticed(copy: Path, file: str, line: str) -> None:
    path = copy / "fairtrial" / file
    path.write_text(path.read_text() + "\n" + line + "\n")
    found = lint_imports(copy)
    assert found.returncode != 0
    assert "BROKEN" in found.stdout


@dataclass(frozen=True)
class Module:
    """What the tests below ask of a module of the package."""

    side_channels: set[str]
    metadata_look_ups: list[int]
    opened_directly: set[str]
    public_classes: list[str]
    constants: list[str]


@cache
def modules() -> dict[str, Module]:
    """Every module, by its path in the package. Parsing them all takes a second, so it is done once."""
    folder = ROOT / "src" / "fairtrial"
    return {path.relative_to(folder).as_posix(): examined(path.read_text()) for path in sorted(folder.rglob("*.py"))}


def examined(source: str) -> Module:
    tree = ast.parse(source)
    nodes = [*ast.walk(tree)]
    return Module(
        side_channels(nodes), metadata_look_ups(nodes), opened_directly(nodes), public_classes(tree), constants(tree)
    )


def nodes_of(source: str) -> list[ast.AST]:
    return [*ast.walk(ast.parse(source))]


def plugin_files() -> list[Path]:
    """The modules of the built-in recipes and launchers, by the registry."""
    modules = [*RECIPES.built_in.values(), *LAUNCHERS.built_in.values()]
    return [ROOT / "src" / f"{module.replace('.', '/')}.py" for module in modules]


def test_the_contract_covers_every_built_in_recipe_and_launcher() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    held = {source for each in contracts if "fairtrial.plugins" in each["name"] for source in each["source_modules"]}
    assert held == {*RECIPES.built_in.values(), *LAUNCHERS.built_in.values()}


@pytest.mark.parametrize("path", plugin_files(), ids=lambda path: path.stem)
def test_a_built_in_plugin_imports_what_a_plugin_of_others_can(path: Path) -> None:
    """Also where only a type checker looks, which import-linter leaves aside."""
    own = f"fairtrial.{path.parent.name}."
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = {node.module or "" if isinstance(node, ast.ImportFrom) else node.names[0].name for node in nodes}
    ours = {module for module in modules if module.partition(".")[0] == "fairtrial"}
    assert {module for module in ours if not module.startswith(own)} <= {"fairtrial.plugins"}


def test_no_module_has_a_name_that_says_nothing() -> None:
    names = {path.stem for path in (ROOT / "src").rglob("*.py")}
    assert not names & {"utils", "util", "helpers", "misc", "common"}


ENTRY_POINT = {("cli/app.py", "a command is run"), ("cli/app.py", "standalone_mode"), ("cli/_output.py", "obj")}
"""The one place where a command line is carried out, once per process, and the one that passes it to its command."""


NAMES = ("ContextVar", "CliRunner", "chdir", "get_current_context", "pass_obj", "make_pass_decorator", "obj", "meta")
"""Click's context passes parameters to a command; results do not travel in it, and nobody asks for it from within."""
IMPORTED = ("contextvars", "ContextVar", "chdir", "click.testing", "CliRunner", "get_current_context", "pass_obj")


def side_channels(nodes: Iterable[ast.AST]) -> set[str]:
    """Ways on which something reaches a function that is not passed to it, or a command runs within a command."""
    found = set()
    for node in nodes:
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else None
        if name in NAMES:
            found.add(name)
        if isinstance(node, ast.alias) and node.name in IMPORTED:
            found.add(node.name)
        if isinstance(node, ast.keyword) and node.arg == "standalone_mode":
            found.add("standalone_mode")
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, ast.Attribute) and called.attr in ("main", "invoke"):
            found.add("a command is run")
    return found


@pytest.mark.slow
def test_nothing_goes_through_a_side_channel() -> None:
    assert {(file, way) for file, module in modules().items() for way in module.side_channels} == ENTRY_POINT


@pytest.mark.parametrize(
    ("line", "way"),
    [
        ("from contextvars import ContextVar", "ContextVar"),
        ("import contextvars", "contextvars"),
        ("planning = contextvars.ContextVar('planning')", "ContextVar"),
        ("with contextlib.chdir(folder): pass", "chdir"),
        ("os.chdir(folder)", "chdir"),
        ("from os import chdir", "chdir"),
        ("from click.testing import CliRunner", "CliRunner"),
        ("context = click.get_current_context(silent=True)", "get_current_context"),
        ("from click import get_current_context", "get_current_context"),
        ("context.obj['result'] = document", "obj"),
        ("context.meta['result'] = document", "meta"),
        ("command = click.pass_obj(command)", "pass_obj"),
        ("cli.main(args=words)", "a command is run"),
        ("command.callback(**context.params, standalone_mode=False)", "standalone_mode"),
        ("context.invoke(command)", "a command is run"),
    ],
)
def test_a_side_channel_is_noticed(line: str, way: str) -> None:
    source = (ROOT / "src/fairtrial/cli/_preregister.py").read_text()
    assert side_channels(nodes_of(source + f"\n\n{line}\n")) == {way}


def metadata_look_ups(nodes: Iterable[ast.AST]) -> list[int]:
    """Lines on which the metadata of a run are looked up by a key, instead of read by an attribute."""
    lines = []
    for node in nodes:
        mapping: ast.expr | None = None
        if (isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)) or (
            isinstance(node, ast.Attribute) and node.attr == "get"
        ):
            mapping = node.value
        name = getattr(mapping, "attr", getattr(mapping, "id", None))
        if name == "metadata":
            lines.append(node.lineno)
    return lines


@pytest.mark.slow
def test_metadata_of_runs_are_read_by_attributes() -> None:
    """A type checker knows the attributes of `core/run_metadata.py`; it does not know the keys of a dictionary."""
    assert not {file: lines for file, module in modules().items() if (lines := module.metadata_look_ups)}


@pytest.mark.parametrize(
    "line",
    [
        "run.metadata['seed']",
        'metadata["seed"] = 3',
        "f\"{shown.run.metadata['hint']}\"",
        "self.metadata.get('telemetry')",
        "[metadata.get(key) for key in keys]",
    ],
)
def test_a_look_up_in_metadata_is_noticed(line: str) -> None:
    assert metadata_look_ups(nodes_of(f"import os\n{line}\n")) == [2]
    attributes = "run.metadata.seed, facts['seed'], {key: metadata[key] for key in BEST_KEYS}"
    assert metadata_look_ups(nodes_of(attributes)) == []


def public_classes(tree: ast.Module) -> list[str]:
    return [node.name for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]


def classes_by_name(classes: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Every public class, with the modules that define one of its name."""
    homes: dict[str, list[str]] = {}
    for module, names in classes.items():
        for name in names:
            homes.setdefault(name, []).append(module)
    return homes


@pytest.mark.slow
def test_one_public_class_has_one_name() -> None:
    """`Options` is exempt: a plug-in's model of its options is called so by contract."""
    homes = classes_by_name({file: module.public_classes for file, module in modules().items()})
    assert not {name: files for name, files in homes.items() if len(files) > 1 and name != "Options"}


def test_two_classes_of_one_name_are_noticed() -> None:
    sources = {"a.py": "class Run: ...", "b.py": "class Run: ...\nclass _Run: ...", "c.py": "class Other: ..."}
    planted = {file: public_classes(ast.parse(source)) for file, source in sources.items()}
    assert classes_by_name(planted)["Run"] == ["a.py", "b.py"]


@pytest.mark.slow
def test_no_constant_of_a_module_is_set_twice() -> None:
    """The second would silently take the place of the first, wherever that one is used."""
    for file, module in modules().items():
        assigned = module.constants
        twice = {name for name in assigned if assigned.count(name) > 1}
        assert not twice, f"{file}: {', '.join(sorted(twice))}"


def constants(tree: ast.Module) -> list[str]:
    return [
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id.isupper()
    ]


def test_a_constant_that_is_set_twice_is_noticed() -> None:
    assert constants(ast.parse("LIMIT = 1\nother = 2\nLIMIT = 3\n")) == ["LIMIT", "LIMIT"]


# Names from outside become paths in one place.

OUTSIDE = (
    "record/*.py", "readers/*.py", "research/*.py", "jobs/*.py", "api/evidence/verify_bundle.py", "api/evidence/bundle.py", "api/running/stores.py", "jobs/mailbox.py",
    "jobs/mailbox_objects.py", "launch/remote_jobs.py",
)  # fmt: skip
"""The modules that handle what others have written: buckets, bundles, stores, registrations, notes."""

GIVEN = "a path that the user has typed"
LISTED = "a name that the operating system has just listed, so it is one part of a path"
OWN = "a name that this program has made or spelled"
NUMBER = "numbers, not paths"
JUDGED = "the result goes to `path_inside` or to `file_in`, which refuse what leads elsewhere"
# fmt: off
ALLOWED = {
    ("record/atomic.py:temporary_path", "path.with_name(f\".{path.name.lstrip('.')}.{os.getpid()}-{os.urandom(4).hex()}.tmp\")"): OWN,
    ("record/study_cache.py:read_study", "Path(entry.path)"): LISTED,
    ("record/cache.py:StoreCache.entry", "self.root / kind / content_hash(dict(key))[:20]"): OWN,
    ("record/cache.py:set_aside", "folder.with_name(f'{folder.name}{DAMAGED}{time.time_ns()}')"): OWN,
    ("record/damage.py:Quarantine.__init__", "store.root / ARCHIVE / f'damage.{stamp}'"): OWN,
    ("record/damage.py:Quarantine._place", "self._folder / path.relative_to(self._root)"): LISTED,
    ("record/damage.py:find_damage", "Path(entry.path)"): LISTED,
    ("record/environment.py:_untracked", "Path((git_output(folder, 'rev-parse', '--show-toplevel') or str(folder)).strip())"): OWN,
    ("record/environment.py:_untracked", "top / name"): "git lists the files that differ in the working tree of the user, and they are only hashed",
    ("record/file_systems.py:check_file_system", "root / f'.probe-{os.getpid()}-{os.urandom(4).hex()}'"): OWN,
    ("record/index.py:_content", "Path(where)"): LISTED,
    ("record/index.py:_make_row", "Path(entry.path)"): LISTED,
    ("record/mirror.py:set_aside", "folder / f\"{paths.root.name}.{time.strftime('%Y%m%dT%H%M%S')}-{time.time_ns() % 1000000000:09d}\""): OWN,
    ("record/mirror.py:set_aside", "target / path.name"): LISTED,
    ("record/profiles.py:find_profile", "Path(word)"): GIVEN,
    ("readers/places.py:_walk", "Path(folder)"): LISTED,
    ("readers/places.py:files_below", "Path(folder, name)"): LISTED,
    ("readers/sqlite_files.py:companions", "path.with_name(f'{path.name}-wal')"): "SQLite's own name of the log next to a database",
    ("record/sharing.py:_refuse_alike", "store.paths.mirror.with_name(store.paths.mirror.name.upper())"): OWN,
    ("record/store.py:Store.at", "Path(place)"): GIVEN,
    ("record/recorded_names.py:store_paths", "Path(address)"): GIVEN,
    ("record/store_location.py:_checked_url", "Path(unquote(rest))"): GIVEN,
    ("record/store_location.py:mirror_folder", "Path(base)"): GIVEN,
    ("record/store_location.py:mirror_folder", "Path(base).expanduser().absolute() / f'{readable}-{hashlib.sha256(key.encode()).hexdigest()[:10]}'"): OWN,
    ("record/store_location.py:project_store", "artifact.parent / Path(place).expanduser()"): GIVEN,
    ("record/store_location.py:project_store", "Path(place)"): GIVEN,
    ("record/store_location.py:store_address", "Path(place)"): GIVEN,
    ("record/store.py:Store._archived_name", "folder / f'{paths.root.name}.{stamp}-{time.time_ns() % 1000000000:09d}'"): OWN,
    ("record/store.py:Store._match", "Path(os.path.abspath(reference))"): GIVEN,
    ("record/store.py:Store._match", "Path(entry.path)"): LISTED,
    ("record/upload.py:whole_files", "Path(folder, name)"): LISTED,
    ("record/upload.py:RunUpload._send_files", "self.paths.root / name"): LISTED,
    ("record/upload.py:publish_run", "Path(name)"): "never opened: only its last part is looked at",
    ("research/archive.py:under_another_name", "path.with_name(f'.{path.name}.{os.getpid()}.tmp')"): OWN,
    ("research/archive.py:_write_zip", "PurePosixPath(name)"): "never opened: only its parts are looked at",
    ("research/archive.py:folders_of", "PurePosixPath(name)"): "never opened: only its parts are looked at",
    ("research/crate.py:crate_document", "PurePosixPath(name)"): "never opened: only its parts are looked at",
    ("research/crate.py:_file", "PurePosixPath(name)"): "never opened: only its parts are looked at",
    ("research/command_log.py:_folder", "Path(os.path.relpath(Path.cwd(), root))"): OWN,
    ("research/keys.py:_make_key", "path.with_name(f'.{path.name}.{os.urandom(4).hex()}.tmp')"): OWN,
    ("research/keys.py:_text_of", "Path(given)"): GIVEN,
    ("api/evidence/verify_bundle.py:verify_bundle", "Path(path)"): GIVEN,
    ("api/evidence/verify_bundle.py:verify_bundle", "Path(folder)"): OWN,
    ("api/evidence/verify_bundle.py:verify_bundle", "Path(published)"): GIVEN,
    ("api/evidence/verify_bundle.py:_files_below", "Path(folder) / name"): LISTED,
    ("api/evidence/bundle.py:bundle", "Path(folder)"): OWN,
    ("api/evidence/bundle.py:_target", "Path(output)"): GIVEN,
    ("api/evidence/bundle.py:_target", "project.paths.root / (f'{usual}.zip' if zipped else usual)"): OWN,
    ("api/evidence/bundle.py:_fill", "stage.folder / INSIDE.store"): OWN,
    ("api/evidence/bundle.py:_planned", "copy.root.parent / INSIDE.registrations"): OWN,
    ("api/evidence/bundle.py:_stage_run", "INSIDE.store / run.study / run.id"): JUDGED,
    ("api/evidence/bundle.py:_stage_run", "place / paths.metadata.name"): OWN,
    ("api/evidence/bundle.py:_stage_run", "place / path.name"): LISTED,
    ("api/evidence/bundle.py:_stage_run", "place / path.relative_to(paths.root).as_posix()"): LISTED,
    ("api/evidence/bundle.py:_others", "Path(folder) / name"): LISTED,
    ("api/evidence/bundle.py:_stage_study", "INSIDE.store / study / path.name"): JUDGED,
    ("api/evidence/bundle.py:_stage_project", "INSIDE.registrations / path.name"): LISTED,
    ("api/evidence/bundle.py:_stage_project", "INSIDE.files / file_in(project, path)"): JUDGED,
    ("api/evidence/bundle.py:_stage_added", "INSIDE.files / file_in(project, path)"): JUDGED,
    ("api/evidence/bundle.py:_named", "project.paths.root / folder / word"): JUDGED,
    ("api/evidence/bundle.py:_named", "Path(file)"): JUDGED,
    ("api/evidence/bundle.py:_stage_charts", "stage.folder / INSIDE.charts(study)"): OWN,
    ("api/evidence/bundle.py:_stage_charts", "INSIDE.charts(study) / path.name"): LISTED,
    ("api/running/stores.py:sync_store", "Path(to)"): GIVEN,
    ("api/running/stores.py:_copy_run", "copy.root / path.relative_to(source.root)"): LISTED,
    ("jobs/mailbox.py:open_mailbox", "Path(where)"): GIVEN,
}
# fmt: on
"""Where a path is built of something else than a foreign name: module and function, the expression, the reason."""


def outside_modules() -> dict[str, str]:
    folder = ROOT / "src" / "fairtrial"
    found = sorted({path for pattern in OUTSIDE for path in folder.glob(pattern)})
    return {path.relative_to(folder).as_posix(): path.read_text() for path in found}


def paths_in(file: str, source: str) -> set[tuple[str, str]]:
    return {(f"{file}:{function}", expression) for function, expression in built_paths(source)}


@pytest.mark.slow
def test_no_module_but_one_makes_a_path_of_a_name_from_outside() -> None:
    found = {place for file, source in outside_modules().items() for place in paths_in(file, source)}
    new = "\n".join(f"{where}: {expression}" for where, expression in sorted(found - ALLOWED.keys()))
    assert not new, f"use core/untrusted.path_inside, or say in ALLOWED where the name comes from:\n{new}"
    assert not ALLOWED.keys() - found, "these are no longer needed"


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("record/mirror.py", "target = root / name"),
        ("record/mirror.py", "target = root / manifest.files[0]"),
        ("record/mirror.py", "target = root / 'checkpoints' / name"),
        ("record/sharing.py", "target = os.path.join(root, name)"),
        ("record/sharing.py", "target = root.joinpath(name)"),
        ("record/sharing.py", "target = root / '../x'"),
        ("record/upload.py", "target = Path(root, name)"),
        ("record/upload.py", "target = Path(name)"),
        ("record/top_checkpoints.py", "target = root / f'top-{name}.pt'"),
        ("research/archive.py", "archive.extractall(root)"),
        ("research/archive.py", "target = root.with_name(name)"),
        ("research/command_log.py", "file = open(f'{root}/{name}')"),
        ("research/ledger.py", "file = os.open(str(root) + '/' + name, 0)"),
        ("api/evidence/verify_bundle.py", "target = path / name"),
        ("jobs/mailbox.py", "target = self.path / name"),
        ("launch/remote_jobs.py", "os.rename(f'{root}/{name}', root)"),
    ],
)
def test_a_path_of_a_name_from_outside_is_noticed(file: str, line: str) -> None:
    planted = f"\n\ndef planted(self, root, name, archive, manifest, path):\n    {line}\n"
    found = paths_in(file, outside_modules()[file] + planted) - ALLOWED.keys()
    assert [where for where, _ in found] == [f"{file}:planted"]


def test_a_judgment_that_is_taken_away_is_noticed() -> None:
    judged, bare = "path_inside(self.paths.root, name, what=self.names.root)", "self.paths.root / name"
    source = outside_modules()["record/mirror.py"]
    assert judged in source
    found = paths_in("record/mirror.py", source.replace(judged, bare)) - ALLOWED.keys()
    assert [expression for _, expression in found] == [bare]


# Files that somebody else may have put there

READERS = ("record/", "readers/", "research/", "api/", "core/", "jobs/")
OWN_FILES = {
    "core/results.py:chart": "a chart that it has just drawn",
    "api/running/detach.py:_last_words": "what a process printed that was started here",
    "api/running/detach.py:_move_output": "what a process printed that was started here",
    "api/evidence/export.py:export": "files of a bundle that it has just made",
    "jobs/processes.py:_processes": "the system's own files",
    "record/environment.py:_first_core": "the system's own files",
    "record/file_systems.py:_try_appending": "files that it has just written",
    "record/file_systems.py:_try_replacing": "files that it has just written",
}


def opened_directly(nodes: Iterable[ast.AST]) -> set[str]:
    """The functions of a module that read a file by its name without `open_regular` or `read_regular`."""
    found = set()
    for function in nodes:
        if isinstance(function, ast.FunctionDef):
            found |= {function.name for call in ast.walk(function) if isinstance(call, ast.Call) and reads_file(call)}
    return found


def reads_file(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if isinstance(call.func, ast.Attribute) and name in ("read_bytes", "read_text"):
        return True
    modes = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return name == "open" and any(mode in ("r", "rb", "rt") for mode in modes)


@pytest.mark.slow
def test_files_of_others_are_opened_in_one_place() -> None:
    found = {
        f"{file}:{function}"
        for file, module in modules().items()
        if file.startswith(READERS)
        for function in module.opened_directly
    }
    assert found == OWN_FILES.keys(), "use core/regular_files, or say in OWN_FILES whose file it is"


@pytest.mark.parametrize("line", ["path.read_bytes()", "path.read_text()", "open(path, 'rb')", "path.open('rb')"])
def test_a_file_that_is_opened_by_its_name_is_noticed(line: str) -> None:
    source = (ROOT / "src/fairtrial/record/series.py").read_text()
    planted = f"\n\ndef planted(path):\n    return {line}\n"
    assert opened_directly(nodes_of(source + planted)) == {"planted"}
