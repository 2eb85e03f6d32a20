"""Makes docs/api.md: the public Python names with their signatures and docstrings. Deprecated names are left out."""

from __future__ import annotations

import ast
import dataclasses
import enum
import importlib
import importlib.util
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

import pydantic

from fairtrial.public_names import PUBLIC_NAMES
from tools.markdown_text import NOTICE, code, plain, table

FOR_AUTHORS = {
    "fairtrial.plugins": "What authors of plug-ins import.",
    "fairtrial.testing": "Contract suites for plug-ins: what every recipe, launcher and game must keep.",
}
"""Further public modules, if they exist."""

WIDEST = 100
"""A signature that is longer has a line for each parameter."""


def api_page() -> str:
    package = importlib.import_module("fairtrial")
    names = {name: getattr(package, name) for name in package.__all__ if not name.startswith("_")}
    parts = [
        NOTICE,
        "# The Python API\n",
        "Every command has a function. It returns a result, which prints as the text of the command, displays in "
        "notebooks, and has `to_dict()`, `to_pandas()` and `to_polars()`: see "
        "[From Python and notebooks](howto/python.md). Import from `fairtrial`:\n",
        "```python\nimport fairtrial\n```\n",
    ]
    groups = _grouped(names)
    for heading, members in groups.items():
        parts += [f"## {heading}\n", _overview(members)]
        parts += [part for name, value in members.items() for part in _section(name, value, names)]
    for module, purpose in FOR_AUTHORS.items():
        if importlib.util.find_spec(module):
            parts += _module(module, purpose)
    return "\n".join(parts)


def _grouped(names: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {heading: {name: names[name] for name in group} for heading, group in PUBLIC_NAMES.items()}


def _module(module: str, purpose: str) -> Iterator[str]:
    loaded = importlib.import_module(module)
    members = {name: getattr(loaded, name) for name in sorted(loaded.__all__, key=str.lower)}
    yield f"## {module}\n"
    yield f"{purpose}\n"
    yield _overview(members)
    for name, value in members.items():
        if callable(value):
            yield from _section(name, value, members)


def _overview(members: dict[str, Any]) -> str:
    rows = [
        (f"[`{name}`](#{_anchor(name, value)})" if callable(value) else code(name), _first_sentence(value))
        for name, value in members.items()
    ]
    return table(("name", "what it is for"), rows)


def _heading(name: str, value: Any) -> str:
    """`sweep` and `class Sweep`: anchors have no capital letters, and must differ."""
    return f"class {name}" if inspect.isclass(value) else name


def _anchor(name: str, value: Any) -> str:
    return _heading(name, value).lower().replace(" ", "-")


def _first_sentence(value: Any) -> str:
    if not callable(value):
        return ""  # the docstring of a list or number is that of its type
    text = " ".join(_docstring(value).split("\n\n")[0].split())
    return re.split(r"(?<=[.?!]) (?=[A-Z`])", text)[0]


def _docstring(value: Any) -> str:
    """Its own, with `<` and `*` as they stand; enums without one would show that of `Enum`."""
    text = inspect.cleandoc(value.__doc__ or "") if value.__doc__ else ""
    if (
        inspect.isclass(value)
        and issubclass(value, enum.Enum)
        and "__doc__" in vars(enum.Enum)
        and text == inspect.cleandoc(enum.Enum.__doc__ or "")
    ):
        return ""
    if dataclasses.is_dataclass(value) and text.startswith(f"{getattr(value, '__name__', '')}("):
        return ""  # made by dataclass from the signature
    prose, example, rest = text.partition(">>> ")
    shown = "".join(part if part.startswith("`") else plain(part) for part in re.split(r"(`[^`]*`)", prose))
    if not example:
        return shown
    # Instructions for the tests are not part of what a reader types.
    session = re.sub(r" *# doctest: \+\w+", "", f"{example}{rest}")
    return f"{shown}```pycon\n{session}\n```"


def _section(name: str, value: Any, names: dict[str, Any]) -> Iterator[str]:
    yield f"### {_heading(name, value)}\n"
    original = next((other for other, each in names.items() if each is value), name)
    if original != name:
        yield f"Another name of [`{original}`](#{_anchor(original, value)}).\n"
        return
    if inspect.isclass(value):
        yield from _class(value)
    else:
        yield f"```python\n{_signature(name, value)}\n```\n"
        yield f"{_docstring(value)}\n"


def _class(value: type) -> Iterator[str]:
    if text := _docstring(value):
        yield f"{text}\n"
    if issubclass(value, enum.Enum):
        yield table(("member", "value"), ((code(each.name), code(str(each.value))) for each in value))
        return
    if rows := list(_fields(value)):
        yield table(("field", "type", "default", "meaning"), rows)
    if methods := list(_methods(value)):
        yield table(("method or property", "what it does"), methods)


def _fields(value: type) -> Iterator[tuple[str, str, str, str]]:
    documented = _attribute_docstrings(value)
    if issubclass(value, pydantic.BaseModel):
        for name, field in value.model_fields.items():
            default = (
                "required"
                if field.is_required()
                else _default(field.get_default(call_default_factory=True, validated_data={}))
            )
            yield (
                code(name),
                _annotation(_written(value, name)),
                default,
                plain(field.description or documented.get(name, "")),
            )
    elif dataclasses.is_dataclass(value):
        for each in dataclasses.fields(value):
            if each.name.startswith("_"):
                continue
            default = "" if each.default is dataclasses.MISSING else _default(each.default)
            yield code(each.name), _annotation(each.type), default, _one_line(documented.get(each.name, ""))


def _written(value: type, name: str) -> Any:
    """The annotation as it stands in the source."""
    return next(
        (
            vars(each)["__annotations__"][name]
            for each in value.__mro__
            if name in vars(each).get("__annotations__", {})
        ),
        "",
    )


def _attribute_docstrings(value: type) -> dict[str, str]:
    """The strings below the fields of a class, and of those that it inherits from."""
    texts: dict[str, str] = {}
    for each in reversed(value.__mro__):
        if not each.__module__.startswith("fairtrial"):
            continue
        [definition] = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        assert isinstance(definition, ast.ClassDef)
        for field, after in zip(definition.body, definition.body[1:], strict=False):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
            ):
                texts[field.target.id] = inspect.cleandoc(str(after.value.value))
    return texts


def _methods(value: type) -> Iterator[tuple[str, str]]:
    for name, member in sorted(vars(value).items()):
        is_property = isinstance(member, property)
        function = member.fget if is_property else getattr(member, "__func__", member)
        if name.startswith("_") or not inspect.isfunction(function):
            continue
        shown = name if is_property else f"{name}({', '.join(_parameter_names(function))})"
        yield code(shown), _one_line(function.__doc__ or "")


def _parameter_names(function: Any) -> Iterable[str]:
    return [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]


def _one_line(text: str) -> str:
    text = " ".join(inspect.cleandoc(text).split("\n\n")[0].split())
    return "".join(part if part.startswith("`") else plain(part) for part in re.split(r"(`[^`]*`)", text))


def _signature(name: str, function: Any) -> str:
    signature = inspect.signature(function)
    returns = (
        "" if signature.return_annotation is inspect.Signature.empty else f" -> {_text(signature.return_annotation)}"
    )
    parameters = list(_parameters(signature))
    line = f"{name}({', '.join(parameters)}){returns}"
    if len(line) <= WIDEST:
        return line
    return f"{name}(\n" + "".join(f"    {each},\n" for each in parameters) + f"){returns}"


def _parameters(signature: inspect.Signature) -> Iterator[str]:
    starred = False
    for each in signature.parameters.values():
        if each.name.startswith("_"):
            continue
        if each.kind is each.KEYWORD_ONLY and not starred:
            yield "*"
        starred = starred or each.kind in (each.KEYWORD_ONLY, each.VAR_POSITIONAL)
        stars = "*" if each.kind is each.VAR_POSITIONAL else "**" if each.kind is each.VAR_KEYWORD else ""
        annotation = "" if each.annotation is each.empty else f": {_text(each.annotation)}"
        default = "" if each.default is each.empty else f"{' = ' if annotation else '='}{_value(each.default)}"
        yield f"{stars}{each.name}{annotation}{default}"


def _text(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _annotation(annotation: Any) -> str:
    return code(re.sub(r"\bAnnotated\[(.*?), .*\]$", r"\1", _text(annotation)))


def _value(value: Any) -> str:
    """As in source code; an object that has no such spelling is a dot-dot-dot."""
    text = f"{type(value).__name__}.{value.name}" if isinstance(value, enum.Enum) else repr(value)
    return "…" if text.startswith("<") or " at 0x" in text else text


def _default(value: Any) -> str:
    return code(_value(value))
