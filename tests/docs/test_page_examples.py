"""The ``>>>`` examples of the documentation's pages print what the pages show. test_api_page.py has those of api.md."""

from __future__ import annotations

import doctest
import re
from typing import Final

import pytest
from docs.pages import PAGES, ROOT

BLOCK: Final = re.compile(r"^```python\n(>>> .*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLES: Final = {
    page: blocks for page in PAGES if page != "docs/api.md" and (blocks := BLOCK.findall((ROOT / page).read_text()))
}


@pytest.mark.parametrize("page", EXAMPLES)
def test_the_examples_of_the_page_hold(page: str) -> None:
    # All blocks of a page share their names, as if a reader typed them in order.
    examples = doctest.DocTestParser().get_doctest("\n".join(EXAMPLES[page]), {}, page, page, 0)
    assert doctest.DocTestRunner().run(examples).failed == 0
