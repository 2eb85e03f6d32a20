"""What is missing is refused in one sentence, with the command that installs it."""

from __future__ import annotations

import pytest

from fairtrial.core.errors import MissingExtra
from fairtrial.core.registry import require_packages


@pytest.mark.parametrize(
    ("packages", "extra", "said", "hint"),
    [
        (["json", "no_such_package"], "lm", "needs no_such_package, which", "pip install 'fairtrial[lm]'"),
        (["no_such", "nor_this"], None, "needs no_such, nor_this, which", "pip install no_such nor_this"),
        (["json.no_such_part"], None, "needs json.no_such_part, which", "pip install json.no_such_part"),
        (["no_such.part"], "otlp", "needs no_such.part, which", "pip install 'fairtrial[otlp]'"),
    ],
)
def test_missing_packages_are_named_with_what_installs_them(
    packages: list[str], extra: str | None, said: str, hint: str
) -> None:
    with pytest.raises(MissingExtra) as caught:
        require_packages("it", packages, extra)
    assert said in caught.value.message and caught.value.hint == f"Install it with: {hint}"


def test_what_is_installed_is_not_refused() -> None:
    require_packages("it", ["json", "importlib.metadata"], None)
