"""What TAB offers, without a shell; tests/cli/test_shells.py presses TAB in real ones."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from fairtrial.cli import _command_shapes as shapes
from fairtrial.cli._completion import candidates
from fairtrial.cli._completion_shells import SHELLS
from fairtrial.record.store import Store
from tests.harness import make
from tests.test_startup import HEAVY, ROOT

FREE_TEXT = {
    "LIST", "N|LIST", "TEXT", "KEY=VALUE", "NAME=VALUE", "NAME=VALUES", "KEY=VALUE,…", "NAME:KEY=VALUE,…", "NAME",
    "FIRST:LAST", "LOW:HIGH", "CARD", "HOST:PORT", "URL", "VALUE", "REFERENCE", "N,N,…", "X,X,…", "REV REV", "A+B",
    "PATTERN=REASON", "COMMAND", "PKG.MOD:FUNCTION", "CONDITION", "HASH", "SPDX", "DOI", "YYYY-MM-DD", "fixed|TEXT",
    "JSON...", "NAME[:max|min]", "METRIC|variant:NAME", "KEY", "EXPRESSION…", "INTEGER", "NUMBER", "",
}  # fmt: skip
"""Values that only the user knows."""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("FAIRTRIAL_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cache" / "fairtrial" / "completion"


def offered(line: str) -> list[str]:
    """The words that TAB offers at the end of a line."""
    *words, incomplete = line.split(" ")
    return [word for word, _ in candidates(words, incomplete)]


def folders(root: Path, *names: str) -> None:
    for name in names:
        (root / name).mkdir(parents=True)


def test_commands_options_and_choices_are_offered() -> None:
    assert offered("co") == ["completion", "compare", "cost-performance"]
    assert offered("runs s") == ["show", "sync", "sql"]
    assert offered("analyze --summary.t") == ["--summary.type", "--summary.threshold"]
    assert offered("analyze --summary.type ") == ["auc", "last", "best", "slope", "time_to"]
    assert offered("train distill --strategy p") == ["progressive"]
    assert offered("train distill --strategy=p") == ["--strategy=progressive"]
    assert offered("completion ") == ["bash", "zsh", "fish"]


def test_an_option_is_offered_once_unless_it_can_be_repeated() -> None:
    assert offered("analyze --sesoi 1 --ses") == []
    assert "--candidate" in offered("analyze --candidate a --cand")


def test_names_come_from_the_store_that_the_line_names(tmp_path: Path) -> None:
    folders(tmp_path / "runs", "here/a.seed1")
    folders(tmp_path / "other", "there/b.seed1", "there/b.seed2", "more/c.seed1", ".profiles/snap")
    assert offered("analyze ") == ["here"]
    assert offered("analyze --store other ") == ["more", "there"]
    assert offered("analyze --store=other there --candidate ") == ["b"]
    assert offered("runs list --store other --variant ") == ["b", "c"]
    assert offered("runs show --store other t") == ["there/"]
    assert offered("runs show --store other there/") == ["there/b.seed1", "there/b.seed2"]
    assert offered("variance --store other there:") == ["there:b"]
    assert offered("power --store other --pilot m") == ["more:", "more/"]
    assert offered("profile show --store other ") == ["snap"]


def test_several_values_of_one_option_are_completed(tmp_path: Path) -> None:
    folders(tmp_path / "runs", "s/a.seed1", "s/a.seed2")
    assert offered("analyze --control-run-ids s/a.seed1 s/a.seed2") == ["s/a.seed2"]


@pytest.mark.slow
def test_metrics_of_the_named_study_are_offered(store: Store) -> None:
    make(store, "fake", study="one", steps=5)
    found = offered(f"analyze --store {store.root} one --metric ")
    assert "eval_accuracy" in found and "report_accuracy" in found
    assert offered(f"analyze --store {store.root} two --metric ") == found, "an unknown study: the metrics of all"


def test_files_are_offered_by_their_kind(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").touch()
    (tmp_path / "plan.py").touch()
    (tmp_path / "plan.txt").touch()
    folders(tmp_path, "plans")
    assert offered("launch pl") == ["plan.py", "plan.yaml", "plans/"]
    assert offered("train pl") == ["plan.py", "plans/"]
    assert offered("analyze --from pl") == ["plan.py", "plan.txt", "plan.yaml", "plans/"]
    assert offered("analyze --plots pl") == ["plans/"]
    assert "--seeds" in offered("launch plan.yaml --s")


def test_a_recipe_file_is_never_run_by_tab(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("open('ran', 'w')\n")
    assert "--steps" in offered("train ./mine.py --st") and "--seed" in offered("train ./mine.py --se")
    assert not (tmp_path / "ran").exists()


def test_the_cache_is_used_and_a_damaged_one_is_made_again(cache: Path) -> None:
    assert offered("power --ses") == ["--sesoi"]
    for file in cache.iterdir():
        file.write_text("{")
    assert offered("power --ses") == ["--sesoi"]
    for file in cache.iterdir():
        file.write_text(file.read_text().replace("--sesoi", "--sesame"))
    assert offered("power --ses") == ["--sesame"], "it was not read from the cache"


def commands(command: click.Command, context: click.Context, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    yield path
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from commands(inner, click.Context(inner, context, info_name=name), (*path, name))


@pytest.mark.slow
def test_every_parameter_is_completed_or_known_to_be_free_text() -> None:
    from fairtrial.cli.app import cli

    unknown = set()
    for path in commands(cli, click.Context(cli), ()):
        command: click.Command = cli
        for word in path:
            assert isinstance(command, click.Group)
            inner = command.get_command(click.Context(command), word)
            assert inner is not None
            command = inner
        for parameter in command.params:
            number = isinstance(parameter.type, click.types.IntParamType | click.types.FloatParamType)
            choice = isinstance(parameter.type, click.Choice) or getattr(parameter, "choices", ())
            flag = getattr(parameter, "is_flag", False)
            assert parameter.name is not None
            if number or choice or flag or shapes.source_of(path, parameter):
                continue
            free = (path[0], parameter.name) in shapes.SPECIAL or (" ".join(path), parameter.name) in shapes.SPECIAL
            if not free and (parameter.metavar or "") not in FREE_TEXT:
                unknown.add((" ".join(path), parameter.name, parameter.metavar))
    assert not unknown


def answer(shell: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; from fairtrial.cli.app import main\ntry: main()\nfinally: print(*sys.modules, file=sys.stderr)"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False,
        env={**os.environ, "_FAIRTRIAL_COMPLETE": shell, "PYTHONPATH": str(ROOT / "src"), **environment},
    )  # fmt: skip


@pytest.mark.slow
def test_tab_imports_nothing_heavy_and_an_error_is_silent(tmp_path: Path) -> None:
    assert offered("train classify --mod") == ["--model"], "fills the cache"
    warm = answer("zsh", "train", "classify", "--mod")
    assert warm.returncode == 0 and warm.stdout == "-\t--model\tModel to train.\n"
    assert not {name.partition(".")[0] for name in warm.stderr.split()} & set(HEAVY)
    (tmp_path / "runs").write_text("not a store")
    broken = answer("fish", "analyze", "")
    assert (broken.returncode, broken.stdout, "Traceback" in broken.stderr) == (0, "", False)


def lines(text: str, breaks: str = " \t\n\"'><=;|&(:") -> list[str]:
    names = ["my study:long name", "my study:x", "a=b", "open/"]
    found = SHELLS["bash"].answer(
        [text, str(len(text.encode())), breaks], lambda _, word: [(n, "") for n in names if n.startswith(word)]
    )
    return found.splitlines()


def test_bash_gets_only_what_follows_its_last_word_break() -> None:
    assert lines("fairtrial x my") == [r" my\ study:long\ name", r" my\ study:x"]
    assert lines(r"fairtrial x my\ study:l") == [r" long\ name"]
    assert lines("fairtrial x 'my study:l") == [" my study:long name"]
    assert lines('fairtrial x "my st') == [" my study:long name", " my study:x"]
    assert lines("fairtrial x a=") == [" b"]
    assert lines("fairtrial x o") == ["+open/"]
    assert lines("fairtrial x my ") == [r" my\ study:long\ name", r" my\ study:x", " a=b", "+open/"]
