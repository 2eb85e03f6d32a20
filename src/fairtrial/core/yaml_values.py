"""A YAML loader without surprises: `no` and `off` are strings, `5:01` is a string, `1e-3` is a number.

An untrusted document may also be an attack with exponentially expanding aliases or endless nesting. Both are rejected
before any value is constructed.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

import yaml

from fairtrial.core.untrusted import DEEPEST

MOST_NODES = 200_000
"""Maximum number of values in a document; an alias counts each time it is used."""

_PYYAML_SLIPS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Exceptions that PyYAML's constructors raise for invalid values such as `!!int x`."""


def load_yaml(text: str) -> Any:
    """Parse a YAML text. Raises only `yaml.YAMLError` for an invalid one."""
    loader = PlainLoader(text)
    try:
        root = loader.get_single_node()
        if root is None:
            return None
        _refuse_oversized(root)
        return loader.construct_document(root)
    except RecursionError:
        raise yaml.YAMLError(f"nested more than {DEEPEST} levels deep") from None
    except _PYYAML_SLIPS as error:
        raise yaml.YAMLError(f"a value does not fit its tag ({error})") from None
    finally:
        loader.dispose()


def _refuse_oversized(root: yaml.Node) -> None:
    """Reject documents that are too large or too deep: with aliases, a small text can expand to billions of values."""
    sizes: dict[int, int] = {}

    def size(node: yaml.Node, depth: int) -> int:
        if depth > DEEPEST:
            raise yaml.composer.ComposerError(None, None, f"nested more than {DEEPEST} levels deep", node.start_mark)
        known = sizes.get(id(node))
        if known is None:
            children = _children(node)
            known = sizes[id(node)] = 1 + sum(size(child, depth + 1) for child in children)
            if known > MOST_NODES:
                problem = f"more than {MOST_NODES:,} values, aliases included"
                raise yaml.composer.ComposerError(None, None, problem, node.start_mark)
        return known

    size(root, 1)


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [child for pair in node.value for child in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


class PlainLoader(yaml.SafeLoader):
    """PyYAML's safe loader with the plain scalars of YAML 1.2; duplicate keys are errors."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                raise yaml.constructor.ConstructorError(
                    None, None, "a key must be text or a number", key_node.start_mark
                )
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} occurs twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


_PLAIN = {
    "tag:yaml.org,2002:bool": (r"true|True|TRUE|false|False|FALSE", "tTfF"),
    "tag:yaml.org,2002:int": (r"[-+]?[0-9]+", "-+0123456789"),
    "tag:yaml.org,2002:float": (
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+.0123456789",
    ),
}

PlainLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _PLAIN]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _tag, (_pattern, _first) in sorted(_PLAIN.items(), reverse=True):
    PlainLoader.add_implicit_resolver(_tag, re.compile(rf"^(?:{_pattern})$"), list(_first))


def _construct_int(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    """Construct a decimal integer; a leading zero does not mean octal."""
    return int(str(loader.construct_scalar(node)))


PlainLoader.add_constructor("tag:yaml.org,2002:int", _construct_int)
