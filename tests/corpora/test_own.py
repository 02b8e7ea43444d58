"""Kafka's own topics as kfuzz makes them are what their workload says, as `kfuzz state` reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_driver import kfuzz
from own_topics import workload

from kfuzz.corpora.generation import generate
from kfuzz.corpora.own import group_id
from kfuzz.corpora.plan import Plan
from kfuzz.corpora.verification import verify
from kfuzz.corpora.workload import KIB, Workload, parse, render
from kfuzz.errors import UsageError


def state(what: str, made: Workload, out: Path) -> Any:
    """What `kfuzz state` says of a corpus in which `verify` and `check` find nothing."""
    generate(made, out)
    assert verify(out) == []
    kfuzz("check", out)
    assert parse(render(made), "again") == made
    return json.loads(kfuzz("state", what, out, "--json").stdout)


def test_groups_are_hashed_to_partitions_and_have_their_last_commits(tmp_path: Path) -> None:
    things = {"groups": 40, "topics": 2, "partitions": 5, "members": 3, "consumer_share": 0.25, "gone_share": 0.1}
    made = workload("consumer-offsets", 7, segment_bytes=64 * KIB, **things)
    assert len(Plan(made)) > 7
    found = state("groups", made, tmp_path)
    assert found["notes"] == []
    kinds = [(one["group"], one["type"], one["state"], len(one["members"])) for one in found["groups"]]
    left = [one for one in range(40) if one % 10 != 9]
    assert kinds == [(group_id(one), "consumer" if one < 10 else "classic", "Stable", 3) for one in left]
    assert {int(one["offset"]) // 1000 for one in found["offsets"]} == {2}
    assert len(found["offsets"]) == 36 * 10
    # abs("group-0000010".hashCode()) % 7
    [line] = [
        one
        for one in kfuzz("cat", tmp_path, "--topics", "__*").stdout.splitlines()
        if '"group":"group-0000010"}}' in one
    ]
    assert json.loads(line)["partition"] == 119432959 % 7 == 2


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('name = "__consumer_offsets"', 'set its kind to "consumer-offsets"'),
        ('name = "orders"\nkind = "consumer-offsets"', "records of the kind .* are in __consumer_offsets"),
        ('name = "orders"\nthings.groups = 3', "things needs a kind"),
        ('name = "__consumer_offsets"\nkind = "consumer-offsets"\nvalues.size = 9', "cannot have values"),
        ('name = "__consumer_offsets"\nkind = "consumer-offsets"\nthings.brokers = 9', "cannot have things.brokers"),
        ('name = "__consumer_offsets"\nkind = "consumer-offsets"\ntimestamps.jitter_ms = 9', "cannot have timestamps"),
    ],
)
def test_a_topic_of_kafkas_own_with_other_contents_is_refused(text: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        parse(f"[[topics]]\n{text}", "w")
