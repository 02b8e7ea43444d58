"""The commands in the fenced blocks of the documentation, with the output that a page shows for them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = (
    "README.md",
    "CONTRIBUTING.md",
    "DISCLOSURE.md",
    "testees/README.md",
    "tests/README.md",
    *sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").glob("*.md")),
)
# The modules that docs/api.md names. One function, which has the name of a module, has a line of its own with options.
PUBLIC: Final = tuple(
    re.findall(r"^::: (kfuzz(?:\.[a-z]+)+)\n(?! )", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE)
)
FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Blocks in one of these languages hold no commands.
OTHER: Final = ("python", "json", "toml", "java", "go", "javascript", "xml", "text", "mermaid", "c")
PROGRAM: Final = re.compile(
    r"(?:[A-Z][A-Z_]+=\S+ )*(?:kfuzz|python3?|make|pip|node|go|git|docker|spark-submit|curl|\.venv/bin/python) "
)
COMMENT: Final = re.compile(r"\s+# .*$")


class Command(NamedTuple):
    """A command as a page shows it. ``output`` is None where the page shows none."""

    page: str
    text: str
    output: str | None


def commands() -> Iterator[Command]:
    """All commands of all pages, in their order."""
    for page in PAGES:
        for language, block in FENCE.findall((ROOT / page).read_text()):
            if language not in OTHER:
                yield from of_block(page, block)


def of_block(page: str, block: str) -> Iterator[Command]:
    """The commands of one block of a page."""
    # A line that ends with a backslash goes on.
    lines = block.replace("\\\n", " ").splitlines()
    if any(line.startswith("$ ") for line in lines):
        text, output = "", list[str]()
        for line in [*lines, "$ "]:
            if not line.startswith("$ "):
                output.append(line)
                continue
            if text:
                yield Command(page, text, "\n".join(output) if output else None)
            text, output = _bare(line[2:]), []
        return
    for line in lines:
        if PROGRAM.match(line):
            yield Command(page, _bare(line), None)


def _bare(line: str) -> str:
    return " ".join(COMMENT.sub("", line).split())


def shows(expected: str, found: str) -> bool:
    """Whether output is as a page shows it; ``…`` stands for any text, and on a line of its own for any lines."""
    pattern = "".join(
        r"(?:.*\n)*" if line == "…" else ".*".join(map(re.escape, line.rstrip().split("…"))) + r"\n"
        for line in expected.strip().splitlines()
    )
    trimmed = "".join(f"{line.rstrip()}\n" for line in found.strip().splitlines())
    return re.fullmatch(pattern, trimmed) is not None
