"""Options, each declared once.

A recipe has one frozen option model. Its fields define the command-line flags, the YAML keys, the JSON in
`metadata.json` and the rows in the documentation. A field has a type, a default, a help text, a unit where
one applies, and a role that states what the option affects.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Literal, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic.config import JsonDict
from pydantic.fields import FieldInfo

from fairtrial.core.errors import InvalidOptions, unknown
from fairtrial.core.scores import BenchmarkSettings, one_option
from fairtrial.core.stream_seeds import StreamSeeds
from fairtrial.core.untrusted import is_text

_EXAMPLE = "use a URL such as http://localhost:4318"
_SECRETS = "pass credentials for the receiver in $OTEL_EXPORTER_OTLP_HEADERS"


def checked_receiver(address: str) -> str:
    """Return the URL of an OTLP receiver unchanged; raise a ValueError if it is not valid.

    The URL is written into the metadata of runs, so it must not contain credentials.
    """
    if any(sign in address for sign in "@?#"):
        raise ValueError(f"a receiver URL must not contain a user, password, query or fragment; {_SECRETS}")
    try:
        parts = urlsplit(address)
        parts.port  # noqa: B018 — reading the property validates the port
    except ValueError as error:
        raise ValueError(f"{address!r} is not a valid URL ({error}); {_EXAMPLE}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or not address.isprintable() or " " in address:
        raise ValueError(f"{address!r} is not an http or https URL; {_EXAMPLE}")
    return address


_MISSING: Any = object()


class Role(StrEnum):
    """What an option affects. Roles that cannot change results are not part of a cell's fingerprint."""

    TRAINING = "training"
    MODEL = "model"
    DATA = "data"
    TEACHER = "teacher"
    PRETRAINING = "pretraining"
    EVALUATION = "evaluation"
    SELECTION = "selection"
    COMPUTE = "compute"
    SPEED = "speed"
    PROGRAM = "program"
    OUTPUT = "output"
    CHECKPOINT = "checkpoint"

    @property
    def affects_results(self) -> bool:
        return self not in (Role.OUTPUT, Role.CHECKPOINT, Role.SPEED)


NOT_BENCHED: Mapping[Role, str] = {
    Role.OUTPUT: "bench measures with the default logging settings",
    Role.CHECKPOINT: "bench is never resumed, so it saves no checkpoints",
    Role.SELECTION: "bench does not select a checkpoint",
}
"""Roles whose options `bench` does not accept, with the reason."""


def option(
    default: Any, help: str, *, role: Role, unit: str | None = None, newer: bool = False, **limits: Any  # noqa: A002
) -> Any:  # fmt: skip
    """Declare one option; `limits` are pydantic's (`gt`, `ge`, `le`, …).

    `newer` marks an option that was added after runs of the recipe had been recorded. Its default must keep the
    earlier behavior; at the default, the option is not part of the fingerprint, so those runs still match.
    """
    extra: JsonDict = {"role": role.value, "unit": unit, "newer": newer}
    return Field(default, description=help, json_schema_extra=extra, **limits)


class Options(BaseModel):
    """Base class of option models: frozen, only finite numbers, no unknown names."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True)

    free_values: ClassVar[str | None] = None
    """Name of the mapping option that collects a variant's keys that are not options; None if there is none."""
    fills_environment: ClassVar[bool] = False
    """Whether the recipe itself replaces {env:NAME}, as late as possible; for other recipes the caller does it."""

    @field_validator("*")
    @classmethod
    def _can_be_recorded(cls, value: Any) -> Any:
        """Reject values that JSON cannot represent, because they could not be recorded with the run."""
        if why := _unwritable(value):
            raise ValueError(why)
        return value

    def to_dict(self) -> dict[str, Any]:
        return self.model_dump(mode="json")

    def differing(self) -> dict[str, Any]:
        """Return the values that differ from the defaults."""
        defaults = type(self).model_construct().model_dump(mode="json")
        return {name: value for name, value in self.to_dict().items() if value != defaults.get(name, _MISSING)}


def _unwritable(value: Any) -> str | None:
    """Return why a value, or one nested in it, cannot be stored in metadata (over 64 bits, not UTF-8), or None."""
    if isinstance(value, int):
        return None if -LARGEST <= value < LARGEST else "must be an integer of at most 64 bits"
    if isinstance(value, str):
        return None if value.isascii() or is_text(value) else "must be text that can be encoded in UTF-8"
    parts = [*value, *value.values()] if isinstance(value, Mapping) else value
    inner = parts if isinstance(parts, (list, tuple)) else ()
    return next((why for part in inner if (why := _unwritable(part))), None)


LARGEST = 2**63


class LoopOptions(Options):
    """Options of the training loop, common to all recipes that use it.

    class Options(LoopOptions):
        width: int = option(64, "Units of the hidden layer.", role=Role.MODEL, ge=1)
    """

    most_steps: ClassVar[int] = 10**12
    """Upper limit of every option that counts steps."""

    steps: int = option(1000, "Training steps.", role=Role.TRAINING, unit="steps", ge=1, le=most_steps)
    eval_every: int = option(
        250,
        "Evaluate every N steps and at the end; 0: at the end only.",
        role=Role.EVALUATION,
        unit="steps",
        ge=0,
    )
    log_every: int = option(10, "Log training metrics every N steps.", role=Role.OUTPUT, unit="steps", ge=1)
    checkpoint_every: int = option(
        500,
        "Save a checkpoint every N steps and at the end; 0: none.",
        role=Role.CHECKPOINT,
        unit="steps",
        ge=0,
    )
    best_metric: str | None = option(
        None, "Metric that selects the best checkpoint; default: the recipe's own.", role=Role.SELECTION
    )
    best_mode: Literal["max", "min"] | None = option(
        None, "Whether higher or lower is better for --best-metric.", role=Role.SELECTION
    )
    best_rule: Literal["value", "lcb"] = option(
        "value",
        "Select by the metric's value, or by its lower confidence bound over episodes.",
        role=Role.SELECTION,
        newer=True,
    )
    keep_best: int = option(
        1, "Number of best checkpoints to keep; best.pt is the first.", role=Role.CHECKPOINT, ge=1, newer=True
    )
    stream_seed: StreamSeeds | None = option(
        None,
        "Seed one random stream separately from the run's seed: init=7, order=7 …; may be repeated.",
        role=Role.TRAINING,
        newer=True,
    )
    benchmark: BenchmarkSettings | None = option(
        None, "Reference scores for normalization: random_score, human_score, scale.", role=Role.EVALUATION, newer=True
    )

    otlp: str | None = option(
        None,
        "Also send the run's events to an OTLP/HTTP receiver, such as http://localhost:4318.",
        role=Role.OUTPUT,
        newer=True,
    )

    @field_validator("stream_seed")
    @classmethod
    def _no_seeds_are_none(cls, value: StreamSeeds | None) -> StreamSeeds | None:
        """Treat an empty mapping as the default, so that it has the same fingerprint."""
        return value if value is not None and value.given() else None

    @field_validator("otlp")
    @classmethod
    def _otlp_is_an_address(cls, value: str | None) -> str | None:
        return value if value is None else checked_receiver(value)

    @model_validator(mode="before")
    @classmethod
    def _best_metric_is_one_option(cls, values: Any) -> Any:
        return one_option(values)


CPU = "cpu"
DEVICE_NAME = re.compile(r"[a-z][a-z0-9_]*(:\d+)?")


class TorchOptions(LoopOptions):
    """Options of the training loop for recipes that use torch."""

    device: str = option(CPU, "Device to train on, as torch names it.", role=Role.COMPUTE)
    threads: int = option(1, "Threads per run.", role=Role.COMPUTE, ge=1)

    @field_validator("device")
    @classmethod
    def _device_is_a_name(cls, device: str) -> str:
        """Check the form only. Whether the device exists depends on the machine that the run starts on."""
        if not DEVICE_NAME.fullmatch(device):
            raise ValueError(f"'{device}' does not name a device; use a name such as cpu, cuda, cuda:1, mps or xpu")
        return CPU if device == f"{CPU}:0" else device  # one device, one name: runs with either name are the same run


class CpuOptions(TorchOptions):
    """Options for recipes that can run only on the CPU; deprecated, because all built-in recipes take any device."""

    @field_validator("device")
    @classmethod
    def _on_the_processor(cls, device: str) -> str:
        if device != CPU:
            raise ValueError("this recipe runs only on the CPU")
        return device


LOOP_OPTIONS = frozenset(TorchOptions.model_fields)


@dataclass(frozen=True)
class OptionInfo:
    """Description of one option for other packages: enough for a flag, a YAML comment or a documentation row."""

    name: str
    type_name: str
    default: Any
    help: str
    role: Role
    unit: str | None
    choices: tuple[str, ...] | None
    optional: bool
    newer: bool = False

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def is_switch(self) -> bool:
        return self.type_name == "switch"


def describe_options(model: type[Options]) -> list[OptionInfo]:
    """Return the options of a model: its own first, then those of the training loop."""
    fields = sorted(model.model_fields.items(), key=lambda item: item[0] in LOOP_OPTIONS)
    return [_describe(name, field) for name, field in fields]


def undeclared_options(model: type[Options]) -> list[str]:
    """Return the names of fields that were not declared with `option`, such as `epsilon: float = 0.1`."""
    return [name for name, field in model.model_fields.items() if _declared(field) is None or not field.description]


def _declared(field: FieldInfo) -> JsonDict | None:
    """Return what `option` stored with a field; None if the field was declared in another way."""
    extra = field.json_schema_extra
    return extra if isinstance(extra, dict) and "role" in extra else None


def _describe(name: str, field: FieldInfo) -> OptionInfo:
    extra = _declared(field)
    if extra is None or not field.description:
        raise TypeError(f"option {name!r} must be declared with option(default, help, role=…)")
    inner, optional = _strip_optional(field.annotation)
    choices = tuple(str(c) for c in typing.get_args(inner)) if typing.get_origin(inner) is Literal else None
    unit = extra.get("unit")
    return OptionInfo(
        name=name,
        type_name=_type_name(inner, choices),
        default=field.get_default(call_default_factory=True),
        help=field.description,
        role=Role(str(extra["role"])),
        unit=str(unit) if unit else None,
        choices=choices,
        optional=optional,
        newer=bool(extra.get("newer")),
    )


def _strip_optional(annotation: Any) -> tuple[Any, bool]:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        arguments = [a for a in typing.get_args(annotation) if a is not type(None)]
        if len(arguments) == 1:
            return arguments[0], True
    return annotation, False


def _type_name(inner: Any, choices: tuple[str, ...] | None) -> str:
    if choices:
        return "choice"
    names = {bool: "switch", int: "integer", float: "number", str: "text"}
    return names.get(inner, "list" if typing.get_origin(inner) in (tuple, list) else "mapping")


Model = TypeVar("Model", bound=BaseModel)


def parse_options(model: type[Model], values: Mapping[str, Any], *, where: str, noun: str = "option") -> Model:
    """Validate values against a model; raise one error that lists every problem."""
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        problems = [_sentence(model, problem, noun) for problem in error.errors()]
        head, *rest = problems
        raise InvalidOptions(f"{where}: {head}", problems=[f"{where}: {p}" for p in rest]) from None


WRONG_TYPES = {
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float"), "must be an integer"),
    **dict.fromkeys(("int_parsing_size",), "must be an integer of at most 64 bits"),
    **dict.fromkeys(("float_parsing", "float_type"), "must be a number"),
    "finite_number": "must be a finite number",
    **dict.fromkeys(("bool_parsing", "bool_type"), "must be true or false"),
    "string_type": "must be text",
    **dict.fromkeys(("list_type", "tuple_type"), "must be a list"),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "must be a mapping of names to values"),
}
"""Our words for a value of the wrong type, by pydantic's name of the problem."""


def _sentence(model: type[BaseModel], problem: Any, noun: str) -> str:
    path = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        parent, dot, name = path.rpartition(".")
        return unknown("key" if dot else noun, name, _names_at(model, problem["loc"]), within=parent + dot)
    message = str(problem["msg"]).removeprefix("Value error, ")
    if problem["type"] == "literal_error":
        message = "must be one of " + str(problem["ctx"]["expected"]).replace("'", "")
    elif problem["type"] in WRONG_TYPES:
        message = WRONG_TYPES[problem["type"]]
    elif message.startswith("Input should be "):
        message = "must be " + message.removeprefix("Input should be ")
    if problem["type"] == "missing":
        return f"'{path}' is missing"
    given = f", not {problem['input']!r}" if path and problem["type"] != "value_error" else ""
    return f"{path}: {message}{given}" if path else message


def _names_at(model: type[BaseModel], location: Iterable[Any]) -> Iterable[str]:
    """Return the valid names at the nesting level of the unknown one."""
    for part in list(location)[:-1]:
        field = model.model_fields.get(str(part))
        inner = _strip_optional(field.annotation)[0] if field else None
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return []
        model = inner
    return model.model_fields


def not_benched(model: type[Options]) -> dict[str, str]:
    """Return the options of `train` that `bench` does not accept, with the reason."""
    return {info.name: NOT_BENCHED[info.role] for info in describe_options(model) if info.role in NOT_BENCHED}


def result_options(model: type[Options], options: Options) -> dict[str, Any]:
    """Return the options that can change results; the fingerprint is computed from these."""
    values = options.to_dict()
    return {
        info.name: values[info.name]
        for info in describe_options(model)
        if info.role.affects_results and not (info.newer and values[info.name] == info.default)
    }
