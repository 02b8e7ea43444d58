"""What a user sees of messages: lists, layouts, comparisons, catalogues."""

from __future__ import annotations

import json
from pathlib import Path

from cli_driver import kfuzz

from kfuzz.messages.catalogue import load

DEFINITION = """{ "name": "TallyRequest", "type": "request", "apiKey": 1, "validVersions": "0-1",
  "flexibleVersions": "1+", "fields": [
    { "name": "Names", "type": "[]string", "versions": "0+", "nullableVersions": "1+" },
    { "name": "Tree", "type": "Node", "versions": "1+", "fields": [
      { "name": "Nodes", "type": "[]Node", "versions": "1+" },
      { "name": "Count", "type": "int32", "versions": "1+", "default": "-1", "tag": 0, "taggedVersions": "1+" } ]} ]}"""


def test_the_list_has_every_message_by_its_number() -> None:
    done = kfuzz("messages", "list")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["0", "ProduceRequest", "request", "3-13", "flexible", "9+"]
    assert lines[-1] == "203 messages"
    listed = json.loads(kfuzz("messages", "list", "--json", "--definitions", "3.9.2").stdout)
    assert len(listed) == 186
    fetch = next(one for one in listed if one["name"] == "FetchRequest")
    assert fetch == {
        "api_key": 1,
        "deprecated_versions": "0-3",
        "flexible_versions": "12+",
        "latest_version_unstable": False,
        "listeners": ["zkBroker", "broker", "controller"],
        "name": "FetchRequest",
        "type": "request",
        "valid_versions": "0-17",
    }


def test_a_message_is_shown_as_it_is_sent(tmp_path: Path) -> None:
    (tmp_path / "tally.json").write_text(DEFINITION)
    whole = kfuzz("messages", "show", "tally", "--definitions", tmp_path / "tally.json")
    assert whole.stdout.splitlines() == [
        "TallyRequest: request, number 1, versions 0-1, flexible 1+",
        "  Names    []string  nullable in 1",
        "  Tree     Node      versions 1",
        "    Nodes  []Node    versions 1",
        "    Count  int32     versions 1, tag 0, default -1",
    ]
    new = kfuzz("messages", "show", "tally", "--version", "1", "--definitions", tmp_path / "tally.json")
    assert new.stdout.splitlines()[1:] == [
        "  Names    compact []string  nullable",
        "  Tree     Node",
        "    Nodes  compact []Node",
        "    Count  int32             tag 0, default -1",
    ]
    old = kfuzz("messages", "show", "tally", "--version", "0", "--json", "--definitions", tmp_path / "tally.json")
    assert [field["name"] for field in json.loads(old.stdout)["fields"]] == ["Names"]


def test_a_comparison_ends_with_1_where_peers_would_not_understand_one_another(tmp_path: Path) -> None:
    for name, text in (("old", DEFINITION), ("new", DEFINITION.replace('"-1"', '"-2"'))):
        (tmp_path / f"{name}.json").write_text(text)
    same = kfuzz("messages", "diff", tmp_path / "old.json", tmp_path / "old.json")
    assert (same.returncode, same.stdout) == (0, "0 incompatible, 0 fine\n")
    done = kfuzz("messages", "diff", tmp_path / "old.json", tmp_path / "new.json")
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "incompatible TallyRequest.Tree.Count: default-changed: it was -1, and is -2",
        "1 incompatible, 0 fine",
    ]
    [change] = json.loads(kfuzz("messages", "diff", tmp_path / "old.json", tmp_path / "new.json", "--json").stdout)
    assert (change["code"], change["incompatible"], change["path"]) == ("default-changed", True, "Tree.Count")


def test_an_import_makes_a_catalogue(tmp_path: Path) -> None:
    (tmp_path / "tally.json").write_text(DEFINITION)
    out = tmp_path / "out" / "mine.json"
    done = kfuzz("messages", "import", tmp_path / "tally.json", "--kafka", "9.9", "--out", out)
    assert (done.returncode, done.stdout) == (0, f"{out}: 1 messages of Kafka 9.9\n")
    assert load(out).messages == load(tmp_path / "tally.json").messages
    (tmp_path / "other.json").write_text(DEFINITION.replace('"-1"', '"-2"'))
    wrong = kfuzz("messages", "import", out, tmp_path / "other.json", "--kafka", "9.9", "--out", tmp_path / "no")
    assert wrong.returncode == 2
    assert "defines TallyRequest otherwise" in wrong.stderr
    assert not (tmp_path / "no").exists()
