"""Run groups of cells on cloud machines, as managed jobs of SkyPilot, which also replaces lost machines.

Cloud machines share no disk with this one, so the store must be at a URL. Remote jobs write their messages there too.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fairtrial.launch.sky_program import OLDEST, Judgement, Sky
from fairtrial.launch.sky_queue import SkyLauncher, SkyQueue
from fairtrial.launch.sky_shipping import ShippedFolder
from fairtrial.launch.sky_tasks import (
    Options,
    about_cards,
    as_yaml,
    divide,
    launch_words,
    mailbox_location,
    make_task,
    options_of,
    secrets_of,
    task_name,
)
from fairtrial.launch.surroundings import open_mailbox
from fairtrial.plugins import Described, LaunchRequest, UserError, errors

SUMMARY = "Cloud machines, through SkyPilot."
REQUIRES: tuple[str, ...] = ()
EXTRA = None
__all__ = ["EXTRA", "REQUIRES", "SUMMARY", "Options", "check", "describe", "open_launcher"]

# Checks before anything is written.


def check(request: LaunchRequest) -> None:
    sky = Sky.require()
    if not _is_shared(request.store):
        raise UserError(
            _no_way_to(request.store), hint="Use a shared store: --store s3://bucket/folder, or gs://bucket/folder"
        )
    options = options_of(request)
    unset = [name for name in secrets_of(request) if name not in os.environ]
    if unset:
        raise UserError(f"secrets: ${', $'.join(unset)} is not set here", hint="Export it, or omit it.")
    [*_, task] = tasks_for(request, [["run"]])
    if cards := about_cards(request):
        request.tell(cards)
    judged = require_accepted(sky.judge([task]))
    for text in judged.not_checked:
        request.tell(f"Not checked: {text}.")
    _require_access(sky, options.cloud)


def _is_shared(store: str) -> bool:
    return "://" in store and not store.startswith("file:")


def _no_way_to(store: str) -> str:
    return f"cloud machines cannot reach the store {store}"


def require_accepted(judged: Judgement) -> Judgement:
    version = re.match(r"(\d+)\.(\d+)", judged.version or "")
    if version and (int(version[1]), int(version[2])) < OLDEST:
        raise UserError(
            f"SkyPilot {judged.version} is too old: --on skypilot needs {'.'.join(map(str, OLDEST))} or newer",
            hint="Update it: pipx upgrade skypilot",
        )
    if judged.problems:
        head, *rest = [f"--on skypilot: {problem}" for problem in judged.problems]
        raise errors.InvalidOptions(head, problems=rest, hint="SkyPilot reported this; nothing was started.")
    return judged


def _require_access(sky: Sky, cloud: str | None) -> None:
    clouds = sky.clouds(cloud)
    if not clouds:
        shown = f"sky check {cloud}" if cloud else "sky check"
        raise UserError(
            f"SkyPilot has no access to {cloud or 'any cloud'}: there are no valid credentials",
            hint=f"Run this to see what is missing: {shown}",
        )


def tasks_for(request: LaunchRequest, runs: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """Return the tasks for these runs, with one remote job for each list of runs."""
    project = _project(request)
    for word in request.preload:
        if word.endswith(".py"):
            project.relative(word)
    tasks = []
    for number, group in enumerate(divide(len(runs), request), start=1):
        remote_jobs = {f"errand-{member + 1}": runs[member] for member in group}
        tasks.append(
            make_task(request, project, task_name(request.study, str(number)), remote_jobs, mailbox_location(request))
        )
    return tasks


def _project(request: LaunchRequest) -> ShippedFolder:
    return ShippedFolder.around(Path.cwd(), options_of(request).project)


def describe(request: LaunchRequest, runs: Sequence[Sequence[str]]) -> Described:
    """Describe the task files and commands of a launch, with placeholders for names that a launch generates."""
    tasks = tasks_for(request, runs)
    files = [f"{task['name']}.yaml" for task in tasks]
    commands = [shlex.join(["sky", *launch_words(request, file)]) for file in files]
    sky = Sky.find()
    judged = require_accepted(sky.judge(tasks)) if sky else None
    said = [f"The program sky is not on $PATH, so SkyPilot has not checked {_counted(tasks)}."]
    if judged:
        said = [f"SkyPilot {judged.version} accepts {_counted(tasks)}."] if judged.version else []
        said += [f"Not checked: {text}." for text in judged.not_checked]
    said += [cards] if (cards := about_cards(request)) else []
    said += [] if _is_shared(request.store) else [f"A launch needs another --store: {_no_way_to(request.store)}."]
    texts = [as_yaml(task) for task in tasks]
    shown = [f"# {file}\n{text}" for file, text in zip(files, texts, strict=True)]
    document = {
        "tasks": [{"file": f, "yaml": t, "task": task} for f, t, task in zip(files, texts, tasks, strict=True)],
        "commands": commands,
        "checked_by": judged.version if judged else None,
        "notes": said,
    }
    return Described("\n".join(["---\n".join(shown), *commands]) + "\n", document, said)


def _counted(tasks: Sequence[Mapping[str, Any]]) -> str:
    return f"the {len(tasks)} task files" if len(tasks) != 1 else "the task file"


def open_launcher(request: LaunchRequest) -> SkyLauncher:
    mailbox = open_mailbox(mailbox_location(request))
    project = _project(request)
    return SkyLauncher(SkyQueue(Sky.require(), request, project, mailbox), mailbox, request, project)
