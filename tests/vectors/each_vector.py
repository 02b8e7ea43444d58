"""One test for each file of vectors, where the same holds for every vector; for tests only."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any

import pytest

from kfuzz.vectors import Vector


def each(vectors: Iterable[Vector]) -> Callable[[Callable[[Vector], None]], Any]:
    """Make a test of what must hold for a vector: it asks all ``vectors`` of one file, and names each that fails."""
    by_file = {file: list(several) for file, several in groupby(vectors, lambda vector: vector.id.rpartition("/")[0])}
    assert by_file

    def test_of(check: Callable[[Vector], None]) -> Any:
        def test(file: str) -> None:
            failed = []
            for vector in by_file[file]:
                try:
                    check(vector)
                except AssertionError as error:
                    failed.append(f"{vector.id}: {error}")
            if failed:
                pytest.fail("\n".join(failed), pytrace=False)

        test.__name__ = check.__name__
        # Bombs take most of the time.
        files = [pytest.param(file, marks=pytest.mark.full) if "/bomb" in file else file for file in by_file]
        return pytest.mark.parametrize("file", files)(test)

    return test_of
