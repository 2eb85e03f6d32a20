"""The site has a place for every page, and dead links and files from elsewhere are noticed. `make site` builds it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tools.api_page import api_page
from tools.make_site import FROM_THE_ROOT, LINK, copy_pages, problems, with_bars_in_code, without_traceback

import fairtrial

ROOT = Path(__file__).parent.parent


def listed(nav: Any) -> Iterator[str]:
    for entry in nav:
        [(_, target)] = entry.items() if isinstance(entry, dict) else [("", entry)]
        yield from [target] if isinstance(target, str) else listed(target)


def test_every_page_has_a_place_in_the_navigation() -> None:
    names = list(listed(tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]))
    assert len(names) == len(set(names))
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    by_index = {name for name in pages if name.startswith("decisions/") and name != "decisions/index.md"}
    assert set(names) - set(FROM_THE_ROOT) == pages - by_index


def test_links_of_all_pages_lead_somewhere(tmp_path: Path) -> None:
    source = tmp_path / "source"
    copy_pages(ROOT, source)
    dead = [
        f"{page.relative_to(source)}: {target}"
        for page in source.rglob("*.md")
        for _, target, _ in LINK.findall(page.read_text())
        if ":" not in target and not (page.parent / (target.partition("#")[0] or page.name)).is_file()
    ]
    assert not dead  # a directory is a dead link too: the site has no page for it


def test_files_that_pip_leaves_in_the_examples_are_not_copied(tmp_path: Path) -> None:
    for folder in ("docs", "tools/site", "examples/plugins/build/lib", "examples/plugins/x.egg-info"):
        (tmp_path / folder).mkdir(parents=True)
    for name in (*FROM_THE_ROOT, "tools/site/site.css", "tools/site/worker.js", "examples/plugins/build/lib/x.py"):
        (tmp_path / name).write_text("")
    copy_pages(tmp_path, tmp_path / "source")
    assert list((tmp_path / "source/examples/plugins").iterdir()) == []


def test_the_generators_traceback_is_left_out() -> None:
    said = (
        "Warning: no page\n\nTraceback (most recent call last):\n  File 'x', line 1\n    f()\nSystemExit: 1 problem\n"
    )
    assert without_traceback(said) == "Warning: no page\n\nSystemExit: 1 problem\n"


def test_dead_links_and_files_from_elsewhere_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<h1 id="here">A</h1><a href="b.html#there">b</a><a href="#here">a</a>')
    (tmp_path / "b.html").write_text('<a href="c.html">c</a><script src="https://example.org/x.js"></script>')
    (tmp_path / "x.css").write_text("@import 'https://example.org/font.css'; p { background: url(a.png) }")
    assert list(problems(tmp_path)) == [
        "a.html: no such heading: b.html#there", "b.html loads https://example.org/x.js", "b.html: dead link c.html",
        "x.css loads https://example.org/font.css",
    ]  # fmt: skip


def test_a_bar_in_code_of_a_table_has_no_backslash() -> None:
    assert with_bars_in_code("| `a<b \\| c` | d |") == "| <code>a&lt;b &#124; c</code> | d |"
    assert with_bars_in_code("`a \\| b`") == "`a \\| b`"


def test_the_api_page_has_every_public_name_and_no_deprecated_one() -> None:
    page = api_page()
    assert all(f"`{name}`" in page for name in fairtrial.__all__ if not name.startswith("_"))
    assert not any(f"`{old}`" in page for old in fairtrial._RENAMED)


def test_every_picture_is_shown_and_every_chart_has_its_pictures() -> None:
    pages = "\n".join(page.read_text() for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
    assert not [path.name for path in (ROOT / "docs" / "pictures").iterdir() if f"pictures/{path.name})" not in pages]
    make_pictures = pytest.importorskip("tools.make_pictures", reason="needs Pillow", exc_type=ImportError)
    shown = set(re.findall(r"pictures/(\w+)-(?:two|twelve)\.png", (ROOT / "docs" / "pictures.md").read_text()))
    assert shown == {name for names in make_pictures.SCENES.values() for name in names}
    assert {len(name) for name in make_pictures.TWELVE} == {40} and len(set(make_pictures.TWELVE)) == 12
