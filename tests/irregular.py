"""Things that are no regular files, as somebody might put them where kfuzz looks for one; for tests only."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

# The first line of a file outside, which nothing may print.
SECRET: Final = "the first line of somebody's file"


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        # The whole path may be too long for a socket's name.
        before = Path.cwd()
        os.chdir(path.parent)
        try:
            listening.bind(path.name)
        finally:
            os.chdir(before)


def _link_to_file(path: Path) -> None:
    secret = path.parent / "secret"
    secret.write_text(SECRET)
    path.symlink_to(secret)


# The function that makes it, and its name in messages.
IRREGULAR: Final[dict[str, tuple[Callable[[Path], None], str]]] = {
    "pipe": (os.mkfifo, "a pipe"),
    "link to a device": (lambda path: path.symlink_to("/dev/zero"), "a link"),
    "link to a file": (_link_to_file, "a link"),
    "link to nothing": (lambda path: path.symlink_to("nowhere"), "a link"),
    "socket": (make_socket, "a socket"),
}

# For a test with an argument `kind`.
kinds = pytest.mark.parametrize("kind", IRREGULAR)
