"""Names and globs that people type: what they stand for, and what is suggested for a mistyped one."""

from __future__ import annotations

import pytest
from cli_driver import refused

from kfuzz.errors import UsageError
from kfuzz.vectors import KINDS, has_vector, load_suite
from kfuzz.vectors.ids import matching, remedy

IDS = {vector.id for vector in load_suite(kinds=KINDS)}
UNKNOWN = "`kfuzz vectors list` shows their ids"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("records/v2/count/negative-on", "records/v2/count/negative-one"),
        ("records/v2/cuont/negative-one", "records/v2/count/negative-one"),
        ("record/v2/count/negativ-one", "records/v2/count/negative-one"),
        ("negative-one", "records/v2/count/negative-one"),
        ("records/v2/count", "records/v2/count/*"),
        ("records/v2/count/", "records/v2/count/*"),
        ("records", "records/*"),
        ("record/*", "records/*"),
        ("records/v2/cuont/of-*", "records/v2/count/of-*"),
        ("mesages/counts/fetch-request-v18-huge", "messages/counts/fetch-request-v18-huge"),
    ],
)
def test_the_id_or_glob_that_is_nearest_is_suggested_and_names_a_vector(typed: str, meant: str) -> None:
    assert remedy(typed, IDS) == f"did you mean {meant!r}?"
    assert has_vector(meant)
    assert not has_vector(typed)


@pytest.mark.parametrize(
    "typed", ["", "/", "*", "xyzzy", "xyzzy/*", "records/v2/count/xyzzy", "records/v2/cuont/xyzzy-*"]
)
def test_a_name_near_no_other_gets_no_suggestion(typed: str) -> None:
    assert remedy(typed, IDS) == UNKNOWN


def test_nothing_is_suggested_where_there_is_no_vector() -> None:
    assert remedy("records/v2/count/negative-one", set()) == UNKNOWN


def test_every_glob_must_match_an_id() -> None:
    assert matching(IDS, ["records/v2/count/of-2", "records/v2/count/of-3"]) == {
        f"records/v2/count/of-{n}" for n in "23"
    }
    with pytest.raises(UsageError, match=r"^no vector matches 'records/v2/cuont/\*'; did you mean 'records/v2/count/"):
        matching(IDS, ["*", "records/v2/cuont/*"])


@pytest.mark.parametrize(
    "command",
    [["show"], ["vectors", "list"], ["vectors", "copy", "nowhere"], ["conform"], ["differential"]],
    ids=" ".join,
)
def test_every_command_that_takes_an_id_suggests_the_nearest(command: list[str]) -> None:
    said = refused(*command, "records/v2/count/negative-on")
    assert said.endswith("; did you mean 'records/v2/count/negative-one'?\n")
