"""A run as a page: one self-contained HTML file, or a folder for a web server. Both work from a disk, offline.

The first screen is in the HTML: the matrix, and the causes. The script ``page.js`` adds filters, questions and
vectors, and opens the packs of data that these need (``contents.py``). In the file the packs are in the page; in the
folder each has a file, which is loaded when it is needed.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any, Final

from kfuzz import __version__, files
from kfuzz.conformance.judge.matrix import Run
from kfuzz.conformance.report.contents import TITLES, Contents, fragment, packed
from kfuzz.conformance.report.document import notes_of, sentences
from kfuzz.text import printable
from kfuzz.units import counted
from kfuzz.vectors.explaining import Book

INDEX_FILE: Final = "index.html"
SCRIPT_FILE: Final = "page.js"
STYLE_FILE: Final = "page.css"
DATA_DIRECTORY: Final = "data"
TEMPLATE_FILE: Final = "page.html.j2"


def to_html(run: Run, *, root: str | Path | None = None) -> str:
    """One page that loads nothing. ``root`` is the folder of the run's suite, by default kfuzz's own.

    Raises ``UsageError`` if that suite cannot be read.
    """
    contents = Contents(run, Book(None if root is None else Path(root)))
    style, script = _asset(STYLE_FILE), _asset(SCRIPT_FILE)
    # The page's own style and script are allowed by their digests, so nothing else in the page can run.
    policy = f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}"
    return _rendered(contents, policy, style=style, script=script, packs=dict(_packs(contents)))


def write_site(run: Run, directory: str | Path, *, root: str | Path | None = None) -> None:
    """Write the same page as a folder: ``index.html``, its style and script, and the data in ``data/``.

    ``directory`` must be empty or not exist; it is complete before it gets its name. Raises ``UsageError`` if it holds
    something, if it cannot be written, or if the suite in ``root`` cannot be read.
    """
    target = require_empty(directory)
    contents = Contents(run, Book(None if root is None else Path(root)))
    packs = dict(_packs(contents))
    # A page from a disk has no origin, so a browser does not let it fetch files; scripts it may load.
    made = {f"{DATA_DIRECTORY}/{name}.js": f'kfuzzPack("{name}","{pack}")\n' for name, pack in packs.items()}
    made |= {name: _asset(name) for name in (SCRIPT_FILE, STYLE_FILE)}
    policy = "default-src 'none'; style-src 'self' file:; script-src 'self' file:"
    made[INDEX_FILE] = _rendered(contents, policy, style="", script="", packs={})
    with files.whole_directory(target) as whole:
        for name, text in made.items():
            (whole / name).parent.mkdir(parents=True, exist_ok=True)
            (whole / name).write_text(text, encoding="utf-8")


def require_empty(directory: str | Path) -> Path:
    """The folder for a site. It makes nothing; ``UsageError`` if no folder can be made there, or it holds something."""
    return files.require_empty(directory, remedy="name another folder, or remove the site that it holds")


def _packs(contents: Contents) -> Iterator[tuple[str, str]]:
    yield "core", packed(contents.core())
    yield "words", packed(contents.words())
    for number, pack in enumerate(contents.themed()):
        yield f"theme-{number}", packed(pack)


def _asset(name: str) -> str:
    return resources.files("kfuzz.conformance.report").joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _rendered(contents: Contents, policy: str, **given: Any) -> str:
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("kfuzz.conformance.report", ""),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Everything but our own markup may be a text of a testee, which must not reorder or hide other text.
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    run = contents.run
    cases = run.cases
    return environment.get_template(TEMPLATE_FILE).render(
        given,
        style=Markup(given["style"]),
        script=Markup(given["script"]),
        policy=policy,
        version=__version__,
        contents=contents,
        harms=contents.by_harm(),
        titles=TITLES,
        judged=contents.judged,
        squares=contents.squares(),
        run=run,
        roles=list(dict.fromkeys(case.role for case in cases)),
        vector_count=len({case.vector.id for case in cases}),
        unexpected=sum(len(testee.unexpected) for testee in contents.judged),
        faulty=sum(any(square.wrong for square in row) for row in contents.squares()),
        remarks=_remarks(run),
        counted=counted,
        fragment=fragment,
    )


def _remarks(run: Run) -> list[str]:
    """The facts that the matrix does not show: testees that were left out, notes, lines that are out of date."""
    remarks = [f"{sentence}." for sentence in run.dropped]
    for testee in run.testees:
        remarks += [f"{testee.label}: {note}." for note in notes_of(testee)]
        # A line that is out of date may be one under embargo.
        if testee.stale and testee.published:
            remarks.append(f"{testee.label}: {counted(len(testee.stale), 'line')} of expected outcomes out of date.")
    if not any(testee.published for testee in run.testees):
        remarks += [f"{sentence}." for sentence in sentences(run, with_causes=False)]
    return remarks
