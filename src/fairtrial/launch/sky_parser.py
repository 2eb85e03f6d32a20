"""Asks SkyPilot's own parser about task files.

Runs in the interpreter of the program `sky`, which has its own packages, so nothing of Fairtrial is imported here.
A list of tasks comes as JSON on standard input; what is wrong with them leaves as JSON on standard output.
"""

from __future__ import annotations

import copy
import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

NO_CATALOGUE = "the catalogue of the clouds cannot be fetched, so cards, regions and machine types are not checked"


def judge(tasks: list[dict[str, Any]]) -> dict[str, Any]:
    """The version, every problem as one sentence, and what could not be looked up because there is no network."""
    import sky

    problems: dict[str, None] = {}
    not_checked: dict[str, None] = {}
    for task in tasks:
        try:
            problems.update(dict.fromkeys(_problems(task)))
        except OSError as error:
            not_checked[f"{NO_CATALOGUE} ({type(error).__name__})"] = None
    return {"version": sky.__version__, "problems": list(problems), "not_checked": list(not_checked)}


def _problems(task: dict[str, Any]) -> Iterator[str]:
    """Each resource alone first: the parser stops at the first problem of a file, and people want to see them all."""
    import sky

    parsed: list[Any] = []
    single = [
        f"{name}: {text}"
        for name, value in task.get("resources", {}).items()
        if (text := _tried(lambda config: sky.Resources.from_yaml_config(config), {name: value}))
    ]
    yield from single
    if not single and (text := _tried(lambda config: parsed.append(sky.Task.from_yaml_config(config)), task)):
        yield text
    for chosen in parsed[0].resources if parsed else ():
        if text := _tried(lambda resources: resources.validate(), chosen) or _tried(_require_known_card, chosen):
            yield text


def _tried(function: Callable[[Any], Any], value: Any) -> str | None:
    try:
        function(copy.deepcopy(value))
    except OSError:  # of the network, which says nothing about the task
        raise
    except Exception as error:  # noqa: BLE001 — the parser raises several kinds
        return _plain(str(error)) or type(error).__name__
    return None


def _require_known_card(chosen: Any) -> None:
    from sky import catalog

    for card in chosen.accelerators or {}:
        clouds = [str(chosen.cloud).lower()] if chosen.cloud else None
        if not catalog.list_accelerators(gpus_only=False, name_filter=f"^{card}$", clouds=clouds):
            where = f" on {chosen.cloud}" if chosen.cloud else ""
            raise ValueError(f"there is no accelerator {card!r}{where}; see: sky gpus list --all")


def _plain(message: str) -> str:
    """One sentence, without what only helps somebody who wrote the file by hand."""
    text = " ".join(message.split("\n\n")[0].split())
    return text.removeprefix("Invalid resources YAML: ").partition(". Check problematic field(s)")[0].rstrip(". ")


def main() -> None:
    answers = os.dup(1)
    os.dup2(2, 1)  # the parser reports its own progress on standard output
    try:
        answer = judge(json.load(sys.stdin))
    except ImportError as error:
        answer = {"version": None, "problems": [], "not_checked": [f"{sys.executable}: {error}"]}
    with os.fdopen(answers, "w") as stream:
        json.dump(answer, stream)


if __name__ == "__main__":
    main()
