"""The options of all verbs: one name has one meaning."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

import click

from kfuzz.cli.main import cli

# A report can go to a file, a corpus to a URI, and `conform` asks for several roles. `show` opens the batch at a byte,
# `state` shows metadata at an offset.
TWO_FORMS = {"--at", "--json", "--out", "--role", "--schema"}


def options(command: click.Command, name: str = "kfuzz") -> Iterator[tuple[str, click.Option]]:
    """The options of a command and of the commands in it, each with the command's name."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            assert found is not None
            yield from options(found, f"{name} {inner}")
    yield from ((name, option) for option in command.params if isinstance(option, click.Option) and name != "kfuzz")


def form(option: click.Option) -> tuple[object, ...]:
    """The things that equal options share: names, type, and how their sentence begins."""
    kind = option.type.to_info_dict()
    limits = {key: value for key, value in kind.items() if key not in ("min", "max")}
    begin = re.match(r"\w+", option.help or "")
    return tuple(option.opts), option.name, str(limits), option.is_flag, option.multiple, begin and begin[0]


def test_an_option_that_several_verbs_have_is_the_same_in_each() -> None:
    forms: dict[str, dict[tuple[object, ...], list[str]]] = defaultdict(lambda: defaultdict(list))
    for verb, option in options(cli):
        forms[option.opts[-1]][form(option)].append(verb)
    assert len(forms) > 100
    assert {name: dict(found) for name, found in forms.items() if len(found) > 1 and name not in TWO_FORMS} == {}
    assert all(len(forms[name]) == 2 for name in TWO_FORMS)


def test_every_option_says_what_it_does() -> None:
    silent = [(verb, option.opts) for verb, option in options(cli) if not (option.help or option.hidden)]
    assert silent == []
