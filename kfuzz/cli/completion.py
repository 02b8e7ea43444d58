"""The names that a shell completes: ids of vectors, testees, fuzz targets, and the names that `kfuzz explain` knows.

click calls these functions when a person presses Tab, so they read as little as they can. docs/install.md says how
to switch it on.
"""

from __future__ import annotations

from collections.abc import Iterable

import click
from click.shell_completion import CompletionItem

from kfuzz.errors import KfuzzError


def complete_globs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The ids of kfuzz's own suite, and its folders."""
    ids = _ids()
    folders = {name.rpartition("/")[0] for name in ids}
    return _beginning(sorted({*folders, *ids}), incomplete)


def complete_file_or_id(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The ids that begin so; if there are none, the shell completes files."""
    return (_beginning(_ids(), incomplete) if incomplete else []) or [CompletionItem(incomplete, type="file")]


def complete_testees(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The testees of ``testees/``; with their versions once an ``@`` is there."""
    from kfuzz.conformance.protocol.testees import all_testees

    try:
        labels = [testee.label for testee in all_testees()]
    except KfuzzError:
        return []
    return _beginning(labels if "@" in incomplete else sorted({one.partition("@")[0] for one in labels}), incomplete)


def complete_targets(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The fuzz targets."""
    from kfuzz.fuzz.targets import TARGETS

    return _beginning(TARGETS, incomplete)


def complete_explained(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Findings, requirements, flags and error codes."""
    from kfuzz.vectors.explaining import Book

    names = [name for names in Book().tables().values() for name in names if " " not in name]
    return _beginning(names, incomplete)


def _ids() -> list[str]:
    from kfuzz.vectors import default_root
    from kfuzz.vectors.ids import registered

    return sorted(registered(default_root()))


def _beginning(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]
