"""`python tools/freeze_options.py`: writes down the names of all options, which tests hold the program against."""

from __future__ import annotations

from pathlib import Path

from fairtrial.core.options import describe_options
from fairtrial.core.registry import load_recipe, recipe_names

SNAPSHOT = Path(__file__).parent.parent / "tests" / "core" / "option_names.txt"


def names() -> list[str]:
    return [
        f"{word} {info.flag} {info.role}"
        for word in recipe_names()
        for info in describe_options(load_recipe(word).options)
    ]


if __name__ == "__main__":
    SNAPSHOT.write_text("\n".join([*names(), ""]))
