"""Validate task files with SkyPilot's own parser.

This program runs in the Python interpreter of `sky`, which has its own packages, and therefore imports nothing from
Fairtrial. It reads a list of tasks as JSON from stdin and writes their errors as JSON to stdout.
"""

from __future__ import annotations

import copy
import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

NO_CATALOGUE = "the cloud catalog cannot be downloaded, so accelerators, regions and instance types are not checked"


def judge(tasks: list[dict[str, Any]]) -> dict[str, Any]:
    """Return SkyPilot's version, every error as one sentence, and what could not be checked without a network."""
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
    """Yield the errors of a task. Each resource is checked separately, because the parser stops at the first error."""
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
    except OSError:  # a network error, not an error of the task
        raise
    except Exception as error:  # noqa: BLE001 — the parser raises various exceptions
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
    """Reduce a message to one sentence, without advice that applies only to hand-written files."""
    text = " ".join(message.split("\n\n")[0].split())
    return text.removeprefix("Invalid resources YAML: ").partition(". Check problematic field(s)")[0].rstrip(". ")


def main() -> None:
    answers = os.dup(1)
    os.dup2(2, 1)  # the parser prints its progress to stdout
    try:
        answer = judge(json.load(sys.stdin))
    except ImportError as error:
        answer = {"version": None, "problems": [], "not_checked": [f"{sys.executable}: {error}"]}
    with os.fdopen(answers, "w") as stream:
        json.dump(answer, stream)


if __name__ == "__main__":
    main()
