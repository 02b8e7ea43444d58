"""`make docs`: the site of the documentation."""

from __future__ import annotations

import importlib
import re
import shutil
import sys
import tomllib
from pathlib import Path

import pytest
from docs.pages import PUBLIC, ROOT
from programs import run_program

pytest.importorskip("mkdocs")

from tools.docs_site import OTHERS, with_links

LINKS = tomllib.loads(Path(__file__).with_name("links.toml").read_text())["links"]
KNOWN = frozenset({"spark.md", "coverage.md", "statements.md", "tutorials/a.md", *OTHERS.values()})


@pytest.mark.parametrize(("place", "text", "shown"), LINKS)
def test_links_lead_to_their_targets_in_the_site(place: str, text: str, shown: str) -> None:
    assert with_links(text, place, KNOWN) == shown


@pytest.mark.full
def test_the_site_is_built_and_no_link_is_broken(tmp_path: Path) -> None:
    mkdocs = shutil.which("mkdocs", path=str(Path(sys.executable).parent))
    assert mkdocs
    command = (mkdocs, "build", "--strict", "--quiet", "--site-dir", tmp_path / "site")
    done = run_program(*command, cwd=ROOT, variables={"NO_MKDOCS_2_WARNING": "1"}, timeout=None)
    assert done.stderr == ""
    site = tmp_path / "site"
    for page in ("index.html", "tutorials/judge-your-decoder.html", "project/disclosure.html", "statements.html"):
        assert (site / page).stat().st_size > 5000
    api = (site / "api.html").read_text()
    missing = [
        f"{module}.{name}"
        for module in PUBLIC
        for name in importlib.import_module(module).__all__
        if f'id="{module}.{name}"' not in api
    ]
    # The module has its name too.
    assert missing == ["kfuzz.records.read"]
    shown = re.sub(r"<[^>]+>", "", api)
    # A compiled function: the types are in a stub, the docstring is in the module.
    assert "decompressed_bytes" in shown
    assert "create no batches and no records" in shown
