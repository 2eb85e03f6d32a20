"""Select what is copied to cloud machines: the project with its recipes, and the running version of Fairtrial."""

from __future__ import annotations

import importlib.metadata
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fairtrial
from fairtrial.core.errors import UserError
from fairtrial.core.registry import LoadedRecipe
from fairtrial.version import __version__

SOURCE = "~/.fairtrial/source"
SOURCE_PARTS = ("pyproject.toml", "README.md", "LICENSE", "src")


@dataclass(frozen=True)
class ShippedFolder:
    """The folder that is copied to machines (`root`), and the launch's working directory within it (`start`)."""

    root: Path
    start: Path

    @classmethod
    def around(cls, start: Path, given: str | None) -> ShippedFolder:
        """Return the given project folder, or the git repository around `start`, or `start` itself."""
        start = start.resolve()
        root = Path(given).expanduser().resolve() if given else _repository(start) or start
        if not start.is_relative_to(root):
            raise UserError(
                f"the working directory {start} is outside of the project {root}", hint="Launch from there."
            )
        if root in (Path.home().resolve(), Path(root.anchor)):
            raise UserError(
                f"all of {root} would be copied to every machine",
                hint="Launch from a project folder, or pass one: --with project=FOLDER",
            )
        return cls(root, start)

    def relative(self, file: str) -> str:
        """Return a file's path on a machine, relative to the launch's working directory."""
        path = Path(file).resolve()
        if not path.is_relative_to(self.root):
            raise UserError(
                f"{file} is outside of {self.root}, the folder that is copied to machines",
                hint="Move it there, or pass a folder that contains everything: --with project=FOLDER",
            )
        up = len(self.start.relative_to(self.root).parts)
        return str(Path(*[".."] * up, path.relative_to(self.root)))


def _repository(start: Path) -> Path | None:
    try:
        completed = subprocess.run(
            ["git", "-C", str(start), "rev-parse", "--show-toplevel"],  # noqa: S607
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        return None
    return Path(completed.stdout.strip()).resolve() if completed.returncode == 0 else None


def translated(request: Mapping[str, Any], store: str, project: ShippedFolder) -> dict[str, Any]:
    """Return a request with the store's URL and the recipe's path on the machine."""
    file = request["spec"]["recipe_file"]
    spec = {**request["spec"], "recipe_file": file and project.relative(file)}
    return {**request, "spec": spec, "store": store}


def source_mounts() -> dict[str, str]:
    """Return the file mounts of Fairtrial's source if it runs from a working copy; none if it is a release."""
    root = _working_copy()
    return {f"{SOURCE}/{part}": str(root / part) for part in SOURCE_PARTS} if root else {}


def _working_copy() -> Path | None:
    root = Path(fairtrial.__file__).resolve().parent.parent.parent
    return root if all((root / part).exists() for part in SOURCE_PARTS) else None


def this_fairtrial(extras: Sequence[str]) -> str:
    """Return pip's requirement for exactly this version of Fairtrial."""
    wanted = f"[{','.join(extras)}]" if extras else ""
    if _working_copy():
        return f"{SOURCE}{wanted}"
    if importlib.metadata.distribution("fairtrial").read_text("direct_url.json"):
        raise UserError(
            f"Fairtrial {__version__} was not installed from a package registry, so machines cannot install it either",
            hint="Tell pip what to install: --with install='fairtrial @ git+https://…'",
        )
    return f"fairtrial{wanted}=={__version__}"


def packages_of(recipes: Iterable[LoadedRecipe]) -> list[str]:
    """Return the packages that recipes in files need, by the names of their distributions here."""
    wanted = {name.partition(".")[0] for recipe in recipes if not recipe.extra for name in recipe.requires}
    known = (
        importlib.metadata.packages_distributions() if wanted else {}
    )  # slow: reads the metadata of every installed package
    return sorted({known.get(name, [name])[0] for name in wanted})
