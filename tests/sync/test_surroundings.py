"""What is checked beside the options: the function that is called, the page that describes them, the test."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest
from pydantic import BaseModel

from fairtrial.core.errors import UserError
from fairtrial.sync.functions import not_accepted, read_function
from fairtrial.sync.pages import undocumented
from fairtrial.sync.parameters import Parameter, read_parameters
from fairtrial.sync.trials import run_trial, split_command
from tests.harness import is_alive


def program(*parameters: click.Parameter) -> list[Parameter]:
    return read_parameters(click.Command("program", params=list(parameters)))


OPTIONS = program(
    click.Option(["--learning-rate"]), click.Option(["--steps"]), click.Option(["--quiet"], expose_value=False)
)


@dataclass
class Config:
    learning_rate: float
    steps: int = 1


class Model(BaseModel):
    learning_rate: float
    steps: int = 1


def exact(learning_rate: float, *, steps: int) -> None: ...
def lacking(learning_rat: float, *, steps: int) -> None: ...
def by_position(learning_rate: float, steps: int, /) -> None: ...
def anything(steps: int, **rest: Any) -> None: ...
def of_config(config: Config) -> None: ...
def of_model(model: Model | None = None) -> None: ...
def unreadable(config: NoSuchName, steps: int) -> None: ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("function", "lacks"),
    [
        (exact, []),
        (lacking, ["learning-rate"]),
        (by_position, ["learning-rate", "steps"]),
        (anything, []),
        (Config, []),
        (Model, []),
        (of_config, []),
        (of_model, []),
        (unreadable, ["learning-rate"]),
    ],
)
def test_parameters_that_a_function_lacks_are_found(function: Any, lacks: list[str]) -> None:
    found = not_accepted(read_function(function, "f"), OPTIONS)
    assert [each.parameter.name for each in found] == lacks


def test_a_function_that_takes_anything_says_so_and_a_near_name_is_offered() -> None:
    assert read_function(anything, "f").takes_any and not read_function(exact, "f").takes_any
    assert not_accepted(read_function(lacking, "f"), OPTIONS)[0].nearest == "learning_rat"


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(UserError, match="'m:x' is of type int, not a function"):
        read_function(3, "m:x")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "absent"),
    [
        ("Set `--lr` and `--amp/--no-amp`.", []),
        ("--lr=0.1, then --[no-]amp", []),
        ("| --lr | rate |\n--amp --no-amp", []),
        ("--lr-decay --amp --no-amp", ["--lr"]),
        ("--lr.decay --amp --no-amp", ["--lr"]),
        ("x--lr, --lrs and lr; --amp --no-amp", ["--lr"]),
        ("Take --lr. And --amp.", ["--no-amp"]),
        ("", ["--lr", "--amp", "--no-amp"]),
    ],
)
def test_a_page_must_name_every_flag_as_a_word(text: str, absent: list[str]) -> None:
    parameters = program(
        click.Option(["-l", "--lr"]),
        click.Option(["--amp/--no-amp"]),
        click.Option(["--secret"], hidden=True),
        click.Argument(["data"]),
    )
    assert [flag for each in undocumented(parameters, text) for flag in each.flags] == absent


def test_an_option_with_short_flags_only_is_looked_for_by_them() -> None:
    [short] = program(click.Option(["-q"]))
    assert undocumented([short], "-quick")[0].flags == ("-q",)
    assert not undocumented([short], "use -q")


def python(code: str) -> str:
    return f'{sys.executable} -c "{code}"'


def run(command: str) -> Any:
    return run_trial(command, split_command(command))


def test_a_test_command_passes_or_fails_with_its_last_lines() -> None:
    passed = run(python("print(1)"))
    assert passed.passed and passed.ending == "passed" and passed.tail == ("1",)
    failed = run(python("import sys; [print(n) for n in range(99)]; sys.exit('broken')"))
    assert (
        failed.ending == "failed with exit code 1" and failed.tail[-2:] == ("98", "broken") and len(failed.tail) == 15
    )
    assert run(python("import os; os.kill(os.getpid(), 9)")).ending == "ended by signal 9"


def test_no_shell_sees_the_command(tmp_path: Path) -> None:
    run("echo x > written; touch other")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("no-such-program --x", "cannot run the test command: no-such-program: no such program"),
        ("'open", "cannot parse the test command ''open': No closing quotation"),
        ("  ", "the test command is empty"),
    ],
)
def test_a_command_that_cannot_be_run_is_a_sentence(command: str, told: str) -> None:
    with pytest.raises(UserError, match=told):
        run(command)


def test_ctrl_c_ends_the_test_with_all_that_it_started(tmp_path: Path) -> None:
    (tmp_path / "long.py").write_text(
        "import os, subprocess, time\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        "open('pids', 'w').write(f'{os.getpid()} {child.pid}')\n"
        "os.rename('pids', 'started')\n"
        "time.sleep(600)\n"
    )

    def interrupt() -> None:
        while not (tmp_path / "started").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        run(f"{sys.executable} long.py")
    program, child = map(int, (tmp_path / "started").read_text().split())
    assert not is_alive(program)
    for _ in range(500):  # a signal takes a moment to arrive
        if not is_alive(child):
            break
        time.sleep(0.01)
    assert not is_alive(child)
