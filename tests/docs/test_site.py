"""`make docs`: the site of the documentation."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from docs.pages import ROOT

pytest.importorskip("mkdocs")

from tools.docs_site import OTHERS, with_links

KNOWN = frozenset({"spark.md", "coverage.md", "tutorials/a.md", *OTHERS.values()})


@pytest.mark.parametrize(
    ("place", "text", "shown"),
    [
        ("corpora.md", "see [Spark](spark.md#cost)", "see [Spark](spark.md#cost)"),
        ("tutorials/a.md", "[Spark](../spark.md)", "[Spark](../spark.md)"),
        ("corpora.md", "[send it](../DISCLOSURE.md)", "[send it](project/disclosure.md)"),
        ("project/tests.md", "[how](../CONTRIBUTING.md)", "[how](contributing.md)"),
        ("project/contributing.md", "[the map](docs/coverage.md)", "[the map](../coverage.md)"),
        # A file that is no page of the site.
        ("corpora.md", "[the hook](../tools/docs_site.py) does it", "the hook does it"),
        ("corpora.md", "[`kfuzz`](https://example.org/a.md)", "[`kfuzz`](https://example.org/a.md)"),
        # mkdocs reports it.
        ("corpora.md", "[nowhere](none.md)", "[nowhere](none.md)"),
        ("corpora.md", "```\n[x](../tools/docs_site.py)\n```\n", "```\n[x](../tools/docs_site.py)\n```\n"),
    ],
)
def test_links_lead_to_their_targets_in_the_site(place: str, text: str, shown: str) -> None:
    assert with_links(text, place, KNOWN) == shown


@pytest.mark.full
def test_the_site_is_built_and_no_link_is_broken(tmp_path: Path) -> None:
    mkdocs = shutil.which("mkdocs", path=str(Path(sys.executable).parent))
    assert mkdocs
    done = subprocess.run(
        [mkdocs, "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    for page in ("index.html", "tutorials/judge-your-decoder.html", "project/disclosure.html"):
        assert (tmp_path / "site" / page).stat().st_size > 5000
