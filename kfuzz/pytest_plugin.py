"""Fixtures of pytest for tests of clients (docs/client-tests.md).

Every run of pytest loads this module, so it imports little.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import kfuzz

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfuzz.relay.local import LocalCluster, LocalProxy


@pytest.fixture
def kfuzz_proxy() -> Iterator[Callable[..., LocalProxy]]:
    """Makes proxies that run until the test ends. Its arguments are those of ``kfuzz.proxy``."""
    with contextlib.ExitStack() as running:
        yield lambda *brokers, **options: running.enter_context(kfuzz.proxy(*brokers, **options))


@pytest.fixture
def kfuzz_cluster() -> Iterator[Callable[..., LocalCluster]]:
    """Makes brokers in memory that run until the test ends. Its argument is that of ``kfuzz.cluster``."""
    with contextlib.ExitStack() as running:
        yield lambda count=1: running.enter_context(kfuzz.cluster(count))
