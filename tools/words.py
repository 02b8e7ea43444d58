"""Checks the prose of pages, docstrings and comments for words that a newcomer stumbles over.

``python -m tools.words`` prints one line per problem, with the words to write instead, and then exits with 1.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PROSE: Final = (".py", ".pyx", ".pxd", ".pyi", ".h", ".md")
NOT_READ: Final = ("CHANGELOG.md", "vectors/", "corpus/")
# Where a thing is really behind another, a file explains the rule, or a test plants a line that breaks it.
ALLOWED: Final = (
    ("kfuzz/vectors/recipes/themes/timestamp.py", "the broker's clock is behind the producer's"),
    ("tests/tidy/test_tidy.py", '"instead of `behind`"),'),
    ("tests/tidy/test_tidy.py", '"the thing that acts"),'),
    ("tools/words.py", ""),
)
BEHIND: Final = re.compile(r"(?<![-\w])[Bb]ehind(?![-\w])")
# A statement that begins with What or Who. Questions and headings may.
_NOMINAL: Final = r"(?:What|Who) (?![^.?]*\?)"
IN_CODE: Final = re.compile(rf'(?:^\s*[rf]*""" ?|(?:^|\s)(?:#|/\*) |[.;:] ){_NOMINAL}')
IN_PAGE: Final = re.compile(rf"(?:^\s*(?:[*-] |\d+\. )?|[.;:] |\| )(?:\*\*)?{_NOMINAL}")
HEADER: Final = re.compile(r"\|[\s|:-]+\|$")


def problems(name: str, text: str) -> Iterator[str]:
    """One sentence for each line of the file ``name`` to write again."""
    is_page = name.endswith(".md")
    lines = text.splitlines()
    is_block = False
    for i, line in enumerate(lines):
        if any(name == file and phrase in line for file, phrase in ALLOWED):
            continue
        is_block ^= is_page and line.lstrip().startswith("```")
        if BEHIND.search(line):
            yield f"{name}:{i + 1}: write `after`, `below` or `of` instead of `behind`"
        is_header = is_page and HEADER.match("".join(lines[i + 1 : i + 2]))
        if not is_block and not is_header and (IN_PAGE if is_page else IN_CODE).search(line):
            yield f"{name}:{i + 1}: begin with the thing that acts instead of `What …` or `Who …`"


def main(root: Path = ROOT) -> int:
    """Print the problems of all files that git tracks. Returns 1 if there are any."""
    listed = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=True).stdout
    read = [one for one in listed.splitlines() if one.endswith(PROSE) and not one.startswith(NOT_READ)]
    found = [problem for one in read if (root / one).is_file() for problem in problems(one, (root / one).read_text())]
    print(*found, sep="\n", end="\n" if found else "", file=sys.stderr)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
