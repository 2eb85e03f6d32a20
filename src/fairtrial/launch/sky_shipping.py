"""What a machine of a cloud is sent: the project with its recipes, and the Fairtrial that launches them."""

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
    """The folder that is shipped, and where in it the launch was started."""

    root: Path
    start: Path

    @classmethod
    def around(cls, start: Path, given: str | None) -> ShippedFolder:
        """The git repository that people launch from, else the folder itself."""
        start = start.resolve()
        root = Path(given).expanduser().resolve() if given else _repository(start) or start
        if not start.is_relative_to(root):
            raise UserError(f"the launch was started in {start}, outside of the project {root}", hint="Start it there.")
        if root in (Path.home().resolve(), Path(root.anchor)):
            raise UserError(
                f"the whole of {root} would be shipped to every machine",
                hint="Launch from a project's folder, or name it: --with project=FOLDER",
            )
        return cls(root, start)

    def relative(self, file: str) -> str:
        """How a file is called on a machine, seen from where the launch was started."""
        path = Path(file).resolve()
        if not path.is_relative_to(self.root):
            raise UserError(
                f"{file} is outside of {self.root}, which is all that is shipped",
                hint="Move it there, or name the folder that has everything: --with project=FOLDER",
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
    """A request as a machine is to find it: the store by its URL, the recipe where it was shipped to."""
    file = request["spec"]["recipe_file"]
    spec = {**request["spec"], "recipe_file": file and project.relative(file)}
    return {**request, "spec": spec, "store": store}


def source_mounts() -> dict[str, str]:
    """The parts of a working copy of Fairtrial, where that is what runs here; nothing where it is a release."""
    root = _working_copy()
    return {f"{SOURCE}/{part}": str(root / part) for part in SOURCE_PARTS} if root else {}


def _working_copy() -> Path | None:
    root = Path(fairtrial.__file__).resolve().parent.parent.parent
    return root if all((root / part).exists() for part in SOURCE_PARTS) else None


def this_fairtrial(extras: Sequence[str]) -> str:
    """What pip is asked for: this very version of Fairtrial."""
    wanted = f"[{','.join(extras)}]" if extras else ""
    if _working_copy():
        return f"{SOURCE}{wanted}"
    if importlib.metadata.distribution("fairtrial").read_text("direct_url.json"):
        raise UserError(
            f"Fairtrial {__version__} was not installed here from a package registry, so machines cannot get it there",
            hint="Say what pip is to install: --with install='fairtrial @ git+https://…'",
        )
    return f"fairtrial{wanted}=={__version__}"


def packages_of(recipes: Iterable[LoadedRecipe]) -> list[str]:
    """The packages of recipes that are files: each by the name it is installed under here."""
    wanted = {name.partition(".")[0] for recipe in recipes if not recipe.extra for name in recipe.requires}
    known = importlib.metadata.packages_distributions() if wanted else {}  # looks at every package there is
    return sorted({known.get(name, [name])[0] for name in wanted})
