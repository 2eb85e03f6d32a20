"""The option that gives individual random streams their own seed, so that they can be varied separately."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_serializer, model_validator

from fairtrial.core.streams import STREAMS


def _seed_of(what: str) -> Any:
    return Field(None, description=f"Seed of {what}.", ge=0, lt=2**63)


class StreamSeeds(BaseModel):
    """The option `stream_seed`: root seeds of individual streams. Streams without one use the run's seed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    init: int | None = _seed_of("initial weights")
    order: int | None = _seed_of("the order of training data")
    subset: int | None = _seed_of("the training subset")
    augment: int | None = _seed_of("augmentation")
    env: int | None = _seed_of("environments and actions")
    eval: int | None = _seed_of("evaluation episodes")
    report: int | None = _seed_of("report episodes")

    @model_validator(mode="before")
    @classmethod
    def _from_one_word(cls, given: Any) -> Any:
        """Parse `init=0+order=0`, the form used in variants on the command line."""
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
        """Return the seeds that are set."""
        return {name: seed for name in STREAMS if (seed := getattr(self, name)) is not None}
