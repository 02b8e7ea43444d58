"""The options of all verbs: one name has one meaning."""

from __future__ import annotations

import re
import sys
from collections import defaultdict

import click
import pytest
from cli_driver import commands, kfuzz

from kfuzz.cli import options
from kfuzz.errors import UsageError

# A report can go to a file, a corpus to a URI, and `conform` asks for several roles. `show` opens the batch at a byte,
# `state` shows metadata at an offset.
TWO_FORMS = {"--at", "--json", "--out", "--role", "--schema"}


OPTIONS = [(verb, one) for verb, command in commands() for one in command.params if isinstance(one, click.Option)]


def form(option: click.Option) -> tuple[object, ...]:
    """The things that equal options share: names, type, and how their sentence begins."""
    kind = option.type.to_info_dict()
    limits = {key: value for key, value in kind.items() if key not in ("min", "max")}
    begin = re.match(r"\w+", option.help or "")
    return tuple(option.opts), option.name, str(limits), option.is_flag, option.multiple, begin and begin[0]


def test_an_option_that_several_verbs_have_is_the_same_in_each() -> None:
    forms: dict[str, dict[tuple[object, ...], list[str]]] = defaultdict(lambda: defaultdict(list))
    for verb, option in OPTIONS:
        forms[option.opts[-1]][form(option)].append(verb)
    assert len(forms) > 100
    assert {name: dict(found) for name, found in forms.items() if len(found) > 1 and name not in TWO_FORMS} == {}
    assert all(len(forms[name]) == 2 for name in TWO_FORMS)


def test_every_option_says_what_it_does() -> None:
    silent = [(verb, option.opts) for verb, option in OPTIONS if not (option.help or option.hidden)]
    assert silent == []


def test_the_help_of_a_group_has_the_whole_sentence_of_each_verb() -> None:
    shown = " ".join(kfuzz("vectors", "--help").stdout.split())
    assert " copy Copy the suite into DIR so that another project can vendor it: vectors, schema, req" in shown


def test_without_pyarrow_only_a_schema_that_is_asked_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kfuzz.logs.schemas", None)
    assert options.schemas_of("one.log", (), None) is None
    with pytest.raises(UsageError, match=r"pip install 'kfuzz\[corpus\]'"):
        options.schemas_of("one.log", ("one.avsc",), None)
