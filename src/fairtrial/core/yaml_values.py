"""YAML without its surprises: `no` and `off` are words, `5:01` is text, `1e-3` is a number.

A document from outside may also be an attack: aliases that multiply, nesting without end. Both are refused before
a single value is constructed.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

import yaml

from fairtrial.core.untrusted import DEEPEST

MOST_NODES = 200_000
"""Values in a document, each alias counted as often as it is used."""

_PYYAML_SLIPS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What PyYAML's constructors let through for values such as `!!int x`, each in its own way."""


def load_yaml(text: str) -> Any:
    """The values that a YAML text spells. Raises `yaml.YAMLError`, and nothing else, for one that cannot be read."""
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
    """An alias points to the node of its anchor, so a small text can stand for billions of values."""
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
    """PyYAML's safe loader with the plain values of YAML 1.2, and no key twice."""

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
                    None, None, f"the key {key!r} is there twice", key_node.start_mark
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
    """Decimal, always: a leading zero means nothing."""
    return int(str(loader.construct_scalar(node)))


PlainLoader.add_constructor("tag:yaml.org,2002:int", _construct_int)
