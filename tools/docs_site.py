"""What ``make docs`` does to the pages: mkdocs.yml names this module as its hook.

Some pages stand beside what they describe and not in ``docs/``; they are added to the site. Links to other files of the
repository become plain text, because the site does not have them.
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
_LINK: Final = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<to>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that stand outside of ``docs/``."""
    for path, place in OTHERS.items():
        files.append(File.generated(config, place, content=(ROOT / path).read_text()))
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

    # At the odd places are fences, which have no links.
    parts = re.split(r"(^```.*?^```)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if i % 2 else _LINK.sub(changed, part) for i, part in enumerate(parts))
