"""The option that gives single random streams a seed of their own, so that they can be varied one by one."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_serializer, model_validator

from fairtrial.core.streams import STREAMS


def _seed_of(what: str) -> Any:
    return Field(None, description=f"Seed of {what}.", ge=0, lt=2**63)


class StreamSeeds(BaseModel):
    """The option `stream_seed`: root seeds of single streams. Streams without one follow the run's seed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    init: int | None = _seed_of("initial weights")
    order: int | None = _seed_of("the order of training data")
    subset: int | None = _seed_of("the subset that is trained on")
    augment: int | None = _seed_of("augmentation")
    env: int | None = _seed_of("environments and actions")
    eval: int | None = _seed_of("evaluation episodes")
    report: int | None = _seed_of("episodes that are reported on")

    @model_validator(mode="before")
    @classmethod
    def _from_one_word(cls, given: Any) -> Any:
        """`init=0+order=0`, as a variant on the command line spells it."""
        if not isinstance(given, str):
            return given
        parts = [part.partition("=") for part in given.split("+")]
        if not all(name.strip() and equals for name, equals, _ in parts):
            raise ValueError(f"must be STREAM=SEED, or several joined by +, not {given!r}")
        names = [name.strip() for name, _, _ in parts]
        if len(set(names)) < len(names):
            raise ValueError(f"a stream is named twice in {given!r}")
        return {name: seed for name, (_, _, seed) in zip(names, parts, strict=True)}

    @model_serializer(mode="plain")
    def given(self) -> dict[str, int]:
        """The seeds that were given."""
        return {name: seed for name in STREAMS if (seed := getattr(self, name)) is not None}
