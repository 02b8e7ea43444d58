"""Changes the pages for ``make docs``: mkdocs.yml names this module as its hook.

It adds the pages that are beside what they describe and not in ``docs/``, and those that are made from the vectors.
Links to other files of the repository become plain text, because the site does not have them. The paths of pages that
only the site has become links.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from kfuzz.vectors import default_root
from kfuzz.vectors.coverage import measure
from kfuzz.vectors.pages import site_pages

ROOT: Final = Path(__file__).resolve().parents[1]
# Pages outside of docs/, with their places in the site.
OTHERS: Final = {
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "DISCLOSURE.md": "project/disclosure.md",
    "fuzzers/README.md": "project/fuzzers.md",
    "testees/README.md": "project/testees.md",
    "tests/README.md": "project/tests.md",
}
_SOURCES: Final = {place: path for path, place in OTHERS.items()}
# How the repository names a page that only the site has.
_MADE: Final = re.compile(r"`out/site/(?P<page>[\w/-]+)\.html`")
_LINK: Final = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<to>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in ``docs/``."""
    others = {place: (ROOT / path).read_text() for path, place in OTHERS.items()}
    for place, content in {**others, **site_pages(measure(default_root()))}.items():
        files.append(File.generated(config, place, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Send each link of a page to where its target is in the site."""
    place = page.file.src_uri
    return with_links(markdown, place, known=frozenset(file.src_uri for file in files))


def with_links(markdown: str, place: str, known: frozenset[str]) -> str:
    """The page at ``place`` of the site with its links changed. ``known``: the files of the site."""
    source = posixpath.dirname(_SOURCES.get(place, f"docs/{place}"))

    def changed(link: re.Match[str]) -> str:
        if "://" in link["to"] or link["to"].startswith("mailto:"):
            return link[0]
        target = posixpath.normpath(posixpath.join(source, link["to"]))
        there = OTHERS.get(target, target.removeprefix("docs/"))
        if there in known and (target in OTHERS or target.startswith("docs/")):
            return f"[{link['text']}]({os.path.relpath(there, posixpath.dirname(place))}{link['anchor'] or ''})"
        if not (ROOT / target).exists():
            # mkdocs names it.
            return link[0]
        return link["text"]

    def made(path: re.Match[str]) -> str:
        there = f"{path['page']}.md"
        return f"[{there}]({os.path.relpath(there, posixpath.dirname(place))})" if there in known else path[0]

    # At the odd places are fences, which have no links.
    parts = re.split(r"(^```.*?^```)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if i % 2 else _MADE.sub(made, _LINK.sub(changed, part)) for i, part in enumerate(parts))
