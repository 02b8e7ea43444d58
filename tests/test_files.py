"""Files inside folders that somebody else made: only regular ones are opened, and small ones have a bound."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from irregular import make_socket

from kfuzz.errors import UsageError
from kfuzz.files import open_regular, read_small


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (os.mkfifo, "is a pipe"),
        (os.mkdir, "is a directory"),
        (lambda path: os.symlink("/dev/zero", path), "is a link"),
        (lambda path: os.symlink(__file__, path), "is a link"),
        (make_socket, "is a socket"),
        (lambda path: None, "does not exist"),
    ],
)
def test_only_a_regular_file_is_opened(tmp_path: Path, make: Callable[[Path], None], reason: str) -> None:
    path = tmp_path / "given"
    make(path)
    with pytest.raises(UsageError, match=reason):
        open_regular(path)


@pytest.mark.parametrize(("leads_to", "reason"), [("/dev/zero", "is a device"), ("/", "is a directory")])
def test_a_link_that_the_user_named_must_lead_to_a_regular_file(tmp_path: Path, leads_to: str, reason: str) -> None:
    link = tmp_path / "link"
    link.symlink_to(leads_to)
    with pytest.raises(UsageError, match=f"{reason}; name a regular file"):
        open_regular(link, follow=True)
    link.unlink()
    link.symlink_to(__file__)
    with open_regular(link, follow=True) as file:
        assert file.read() == Path(__file__).read_bytes()


def test_a_small_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(b"12345")
    assert read_small(path, bytes_max=5) == b"12345"
    with pytest.raises(UsageError, match="is larger than 4 bytes"):
        read_small(path, bytes_max=4)


def test_a_small_file_takes_no_memory_for_the_largest(tmp_path: Path) -> None:
    path = tmp_path / "given"
    path.write_bytes(b"12345")
    tracemalloc.start()
    try:
        assert read_small(path, bytes_max=256 << 20) == b"12345"
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20
