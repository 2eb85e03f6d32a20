"""research init, add, cite: describe an artifact, choose its files, and cite it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fairtrial.core.canonical import file_hash
from fairtrial.core.errors import UserError, unknown
from fairtrial.core.paths import ARTIFACT, ProjectPaths, is_url
from fairtrial.core.project_root import find_artifact
from fairtrial.plan.study import read_mapping
from fairtrial.record.environment import git_output
from fairtrial.record.store_location import STORE_VARIABLE, project_store
from fairtrial.research.artifact import UNKNOWN, ArtifactFile, artifact_text, name_parts, parse_artifact
from fairtrial.research.citation import STYLES, cff
from fairtrial.research.citation import cite as cited
from fairtrial.research.command_log import added_files, note_file, read_command_log

HINT = "Create it with: fairtrial research init"


@dataclass(frozen=True)
class Project:
    """A project: its artifact and the paths of its files."""

    artifact: ArtifactFile
    paths: ProjectPaths
    authors_from: str = "artifact.yaml"
    """Source of the authors: `given` to `research init`, `git`, `unknown`, or the name of the file."""

    @property
    def store(self) -> str:
        """The store that the project's commands write to, from any working directory."""
        return os.environ.get(STORE_VARIABLE) or project_store(self.paths.artifact)


def init_artifact(folder: str | os.PathLike[str], values: Mapping[str, Any]) -> Project:
    """Write artifact.yaml and CITATION.cff into a folder that has neither.

    Without authors, the user name from git's configuration is used, else `unknown`. Without a license, none is chosen.

    >>> project = fairtrial.init_artifact("project", {"id": "a1", "title": "A test", "type": "model"})
    """
    folder = Path(folder)
    paths = ProjectPaths(folder)
    today = datetime.now(UTC).date().isoformat()
    authors, source = (values["authors"], "given") if values.get("authors") else _default_authors(folder)
    artifact = parse_artifact({"date": today, **values, "authors": authors}, where=ARTIFACT)
    there = [path.name for path in (paths.artifact, paths.citation) if path.exists()]
    if there:
        raise UserError(
            f"{folder} already has {' and '.join(there)}", hint="Edit what is there, or choose another --output."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in ((paths.artifact, artifact_text(artifact)), (paths.citation, cff(artifact))):
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise UserError(f"cannot write into {folder}: {error.strerror}", hint="Choose another --output.") from None
    return Project(artifact, paths, source)


def _default_authors(folder: Path) -> tuple[list[dict[str, str]], str]:
    """Return git's user name and the source. An email address is never taken from git, only from the user."""
    near = next(each for each in (folder.absolute(), *folder.absolute().parents) if each.is_dir())
    name = (git_output(near, "config", "--get", "user.name") or "").strip()
    if not name or not name.isprintable():
        return [{"family": UNKNOWN}], "unknown"
    return [name_parts(name)], "git"


def load_project(given: str | os.PathLike[str] | None = None) -> Project:
    """Load a project from its artifact.yaml or its folder; by default, from the current folder or one above it."""
    path = find_artifact() if given is None else Path(given)
    if path is None:
        raise UserError("there is no artifact.yaml in this folder or above it", hint=HINT)
    if path.is_dir():
        path = path / ARTIFACT
    if path.name != ARTIFACT:
        raise UserError(f"{path} is not an {ARTIFACT}", hint=HINT)
    artifact = parse_artifact(read_mapping(path, hint=HINT), where=path.name)
    return Project(artifact, ProjectPaths(path.absolute().parent))


def store_of_registration(path: Path) -> str | None:
    """Return the store of the project that contains a registration; None if it is not in a project."""
    artifact = ProjectPaths(path.absolute().parent.parent).artifact
    return load_project(artifact).store if artifact.is_file() else None


def add_file(file: str | os.PathLike[str], artifact: str | os.PathLike[str] | None = None) -> str:
    """Add a file, such as redirected output, to the project; return its name there.

    >>> fairtrial.add_file("log.txt", artifact="project/artifact.yaml")  # doctest: +SKIP
    """
    project = load_project(artifact)
    path = Path(file).absolute()
    name = file_in(project, path)
    if not path.is_file():
        raise UserError(f"no file {file}")
    if name in _own_files(project):
        raise UserError(f"{name} is already part of the project")
    note_file(project.paths, name, file_hash(path))
    return name


def remove_file(file: str | os.PathLike[str], artifact: str | os.PathLike[str] | None = None) -> str:
    """Remove an added file from the project without deleting it; return its name there."""
    project = load_project(artifact)
    name = Path(os.path.relpath(Path(file).absolute(), project.paths.root)).as_posix()
    known = added_files(read_command_log(project.paths.command_log))
    if name not in known:
        message = unknown("added file", name, known) if known else f"{name} was not added; no file was added"
        raise UserError(message)
    note_file(project.paths, name, None)
    return name


def _own_files(project: Project) -> set[str]:
    """Return the names of the files that a bundle of any project contains."""
    paths = project.paths
    own = [paths.artifact, paths.citation, paths.command_log]
    own += paths.registrations.root.iterdir() if paths.registrations.root.is_dir() else []
    return {path.relative_to(paths.root).as_posix() for path in own}


def file_in(project: Project, path: Path) -> str:
    """Return the name of a file within its project; reject a file outside of it, also behind a symlink."""
    root, real = project.paths.root.resolve(), path.resolve()
    if not real.is_relative_to(root):
        raise UserError(f"{path} is outside {root}", hint="Copy it into the project first.")
    if not is_url(project.store) and real.is_relative_to(Path(project.store).resolve()):
        raise UserError(f"{path} is in the store, whose runs are already part of the project")
    name = real.relative_to(root).as_posix()
    if any(part.startswith(".") for part in real.relative_to(root).parts):
        raise UserError(f"{name} is hidden, and hidden files are not bundled", hint="Rename it first.")
    return name


def cite(style: str = "bibtex", artifact: str | os.PathLike[str] | None = None) -> str:
    """Return the citation of the artifact as bibtex, cff or apa.

    >>> print(fairtrial.cite("bibtex", artifact="project/artifact.yaml"))  # doctest: +SKIP
    """
    if style not in STYLES:
        raise UserError(unknown("style", style, STYLES))
    return cited(load_project(artifact).artifact, style)
