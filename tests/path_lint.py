"""Finds the places where source code makes a path of a name that may come from outside.

A name from outside becomes a path only through `core/untrusted.path_inside`. Types do not tell a foreign name from one of
our own, so the lint reports every way to join a path to something that is not spelled out in the source: `path / name`,
`Path(name)`, `path.joinpath(name)`, `os.path.join`, `with_name`, files that are opened by an f-string, and archives that
unpack themselves. A number with the format `d` cannot lead anywhere, nor can a constant.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

JOINING = {"joinpath", "with_name", "with_stem", "with_suffix", "Path", "PurePath", "PurePosixPath", "PosixPath"}
OPENING = {"open", "unlink", "remove", "rename", "replace", "rmtree", "mkdir", "makedirs", "copyfile", "move", "link"}
UNPACKING = {"extract", "extractall", "unpack_archive", "symlink_to", "symlink"}
OPERATING_SYSTEM = {"os", "shutil", "io", ""}


def built_paths(source: str) -> list[tuple[str, str]]:
    """Every expression of a module that makes a path of what is not spelled out there, with the function it is in."""
    tree = ast.parse(source)
    inner = {id(node.left) for node in ast.walk(tree) if isinstance(node, ast.BinOp) and _is_join(node)}
    return [
        (function, ast.unparse(node))
        for function, node in _with_functions(tree)
        if _builds(node) and id(node) not in inner  # of `a / b / c` only the whole is reported
    ]


def _with_functions(node: ast.AST, function: str = "") -> Iterator[tuple[str, ast.AST]]:
    for child in ast.iter_child_nodes(node):
        yield function, child
        named = isinstance(child, ast.FunctionDef | ast.ClassDef)
        yield from _with_functions(child, f"{function}.{child.name}".strip(".") if named else function)  # type: ignore[attr-defined]


def _is_join(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)


def _builds(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp):
        return _is_join(node) and not all(map(_is_spelled_out, _joined(node)))
    if not isinstance(node, ast.Call):
        return False
    place, name = _called(node)
    if name in UNPACKING:
        return True
    if name in JOINING or (name == "join" and place.endswith("path")):
        return not all(map(_is_spelled_out, node.args))
    if name in OPENING and place in OPERATING_SYSTEM:
        return any(map(_is_put_together, node.args[:2]))
    return False


def _is_put_together(node: ast.AST) -> bool:
    """Whether a text is put together of others: by an f-string, `+` or `%`."""
    added = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mod)
    return added or (isinstance(node, ast.JoinedStr) and not _is_spelled_out(node))


def _called(node: ast.Call) -> tuple[str, str]:
    """What a function is called on, and its name."""
    if isinstance(node.func, ast.Attribute):
        return ast.unparse(node.func.value), node.func.attr
    return "", node.func.id if isinstance(node.func, ast.Name) else ""


def _joined(node: ast.AST) -> Iterator[ast.AST]:
    """What is joined to the first part of a path."""
    if isinstance(node, ast.BinOp) and _is_join(node):
        yield from _joined(node.left)
        yield node.right


def _is_spelled_out(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return not isinstance(node.value, str) or ".." not in node.value.split("/")
    if isinstance(node, ast.Name):
        return node.id.isupper()
    if isinstance(node, ast.JoinedStr):
        return all(map(_is_spelled_out, node.values))
    if isinstance(node, ast.FormattedValue):
        return _is_spelled_out(node.value) or _has_format_d(node) or ast.unparse(node.value) == "os.getpid()"
    return False


def _has_format_d(node: ast.FormattedValue) -> bool:
    return node.format_spec is not None and ast.unparse(node.format_spec).strip("f'\"").endswith("d")
