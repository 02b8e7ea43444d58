"""What every verb reads and prints with: paths, standard streams, JSON; progress is ``kfuzz.progress``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, BinaryIO

import click

from kfuzz.errors import UsageError
from kfuzz.files import local_path
from kfuzz.progress import progress

__all__ = ["LocalPath", "echo_json", "json_option", "progress", "standard_streams"]

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")


def echo_json(value: Any) -> None:
    """Print ``value`` as one JSON document with sorted keys."""
    click.echo(json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False))


def standard_streams() -> tuple[BinaryIO, BinaryIO]:
    """Standard input and output as bytes; ``UsageError`` where one was closed before kfuzz began (`<&-`)."""
    for name, stream in (("input", sys.stdin), ("output", sys.stdout)):
        if stream is None:
            raise UsageError(f"standard {name} is closed; leave it open")
    return sys.stdin.buffer, sys.stdout.buffer


class LocalPath(click.ParamType[Path]):
    """A path of this machine; ``file:///data`` is ``/data``, and ``s3a://…`` is refused."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        return local_path(value)
