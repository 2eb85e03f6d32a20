"""Builds the documentation site in site/, and fails on warnings, dead links and anything that is loaded from elsewhere.

python tools/make_site.py              needs zensical (tools/site/constraints.txt); `make site` installs it
python tools/make_site.py --check      checks the site that is there

Pages are copied to build/site-source first, because a page in docs/ also links to files of the repository, such as
`../SECURITY.md` and `../examples/my_recipe.py`, which then become pages and files of the site.
"""

from __future__ import annotations

import argparse
import html
import html.parser
import re
import shutil
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "build" / "site-source"
SITE = ROOT / "site"
FROM_THE_ROOT = ("CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "LICENSE", "SECURITY.md")
WORKER = "worker.js"
REMOTE_WORKER = "https://unpkg.com/iframe-worker/shim"
"""What the generator's offline mode loads from elsewhere; tools/site/worker.js takes its place."""
BAR = r"\|"
ROW = re.compile(r"^\|.*\|$", re.MULTILINE)
CODE_WITH_BAR = re.compile(r"`([^`\n]*\\\|[^`\n]*)`")
TRACEBACK = re.compile(r"^Traceback \(most recent call last\):\n(?:[ \t].*\n)*", re.MULTILINE)
LINK = re.compile(r"(\]\()([^)\s]+)(\))")


# The source.


def copy_pages(root: Path, source: Path) -> None:
    """Everything that the site shows, with links that fit their new places."""
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(root / "docs", source)
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")  # what `pip install` leaves there
    shutil.copytree(root / "examples", source / "examples", ignore=ignored)
    for name in FROM_THE_ROOT:
        shutil.copy(root / name, source / name)
    for name in ("site.css", WORKER):
        shutil.copy(root / "tools" / "site" / name, source / name)
    for page in source.rglob("*.md"):
        place = page.relative_to(source)
        old = root / place if place.as_posix() in FROM_THE_ROOT else root / "docs" / place
        if old.exists():
            page.write_text(with_bars_in_code(with_moved_links(old, page, root, source)))


def with_moved_links(old: Path, page: Path, root: Path, source: Path) -> str:
    return LINK.sub(lambda link: link[1] + moved(link[2], old, page, root, source) + link[3], page.read_text())


def with_bars_in_code(text: str) -> str:
    """GitHub reads `a \\| b` in a table as code with a bar; the generator would show the backslash."""
    return ROW.sub(lambda row: CODE_WITH_BAR.sub(_as_html, row[0]), text)


def _as_html(code: re.Match[str]) -> str:
    return f"<code>{html.escape(code[1].replace(BAR, '|'), quote=False).replace('|', '&#124;')}</code>"


def moved(target: str, old: Path, page: Path, root: Path, source: Path) -> str:
    """A link that stood in `old`, as it must be in `page`. Links within docs/ and to other sites stay as they are."""
    path, sign, anchor = target.partition("#")
    if not path or ":" in path:
        return target
    file = (old.parent / path).resolve()
    place = (
        source / file.relative_to(root / "docs")
        if file.is_relative_to(root / "docs")
        else source / file.relative_to(root)
    )
    if not place.exists():
        return target  # the check of the built site names it
    up = [".."] * (len(page.parent.relative_to(source).parts))
    return "/".join([*up, place.relative_to(source).as_posix()]) + sign + anchor


# The site.


def build() -> bool:
    """Build the site and print what the generator says, without its traceback, which tells nothing about a page."""
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    done = subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(without_traceback(done.stdout), end="", flush=True)
    return done.returncode == 0


def without_traceback(text: str) -> str:
    return TRACEBACK.sub("", text)


def load_worker_locally(site: Path) -> None:
    for page in site.rglob("*.html"):
        up = "../" * len(page.parent.relative_to(site).parts)
        page.write_text(page.read_text().replace(REMOTE_WORKER, up + WORKER))


# The check.


@dataclass
class Page(html.parser.HTMLParser):
    """What a built page links to, loads, and can be linked to by."""

    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "link" and given.get("rel") in ("canonical", "prev", "next", "alternate"):
            pass  # says where a page belongs, and loads nothing
        else:
            self.loaded += [given[name] for name in ("src", "href") if tag != "a" and name in given]


def problems(site: Path) -> Iterator[str]:
    pages = {path: _read(path) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        if path.name == "404.html":
            continue  # its links start at the root of a server
        where = path.relative_to(site)
        for target in page.loaded:
            if urllib.parse.urlsplit(target).scheme in ("http", "https") or target.startswith("//"):
                yield f"{where} loads {target}"
        for target in [*page.links, *page.loaded]:
            if problem := _dead(target, path, pages):
                yield f"{where}: {problem}"
    for path in sorted(site.rglob("*.css")):
        for target in re.findall(r"(?:@import\s+|url\()['\"]?((?:https?:)?//[^'\")\s]+)", path.read_text()):
            yield f"{path.relative_to(site)} loads {target}"


def _read(path: Path) -> Page:
    page = Page()
    page.feed(path.read_text())
    return page


def _dead(target: str, path: Path, pages: dict[Path, Page]) -> str | None:
    """What is wrong with a link within the site."""
    parts = urllib.parse.urlsplit(target)
    if parts.scheme or target.startswith("//"):
        return None
    file = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
    file = file / "index.html" if file.is_dir() else file
    if not file.exists():
        return f"dead link {target}"
    anchor = urllib.parse.unquote(parts.fragment)
    if anchor and file in pages and anchor not in pages[file].anchors and anchor != "__skip":
        return f"no such heading: {target}"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="build nothing")
    if not parser.parse_args().check:
        copy_pages(ROOT, SOURCE)
        shutil.rmtree(SITE, ignore_errors=True)
        if not build():
            print("The site was not built: the generator found the problems above.", file=sys.stderr)
            return 1
        load_worker_locally(SITE)
    found = list(problems(SITE))
    pages = len(list(SITE.rglob("*.html")))
    print("\n".join(found) or f"{pages} pages, no dead links, nothing is loaded from elsewhere: {SITE}/index.html")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
