"""The views of messages that a user gets: lists, layouts, comparisons, catalogues."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from cli_driver import kfuzz, refused

from kfuzz.kafka import KAFKA_3, LATEST
from kfuzz.messages.catalogues import catalogue, load
from kfuzz.messages.codec import encode
from kfuzz.messages.sample import filled

DEFINITION = """{ "name": "TallyRequest", "type": "request", "apiKey": 1, "validVersions": "0-1",
  "flexibleVersions": "1+", "fields": [
    { "name": "Names", "type": "[]string", "versions": "0+", "nullableVersions": "1+" },
    { "name": "Tree", "type": "Node", "versions": "1+", "fields": [
      { "name": "Nodes", "type": "[]Node", "versions": "1+" },
      { "name": "Count", "type": "int32", "versions": "1+", "default": "-1", "tag": 0, "taggedVersions": "1+" } ]} ]}"""


def encoded(name: str, version: int, form: str) -> bytes:
    """The bytes that `kfuzz messages encode` writes, in a process of its own."""
    command = [sys.executable, "-m", "kfuzz.cli.main", "messages", "encode", name, "--version", str(version)]
    return subprocess.run(command, input=form.encode(), capture_output=True, check=True).stdout


def test_the_list_has_every_message_by_its_number() -> None:
    lines = kfuzz("messages", "list", code=0).stdout.splitlines()
    assert lines[0].split() == ["0", "ProduceRequest", "request", "3-13", "flexible", "9+"]
    assert lines[-1] == "192 messages; --all shows 11 more"
    assert kfuzz("messages", "list", "--all").stdout.splitlines()[-1] == "203 messages"
    listed = json.loads(kfuzz("messages", "list", "--json", "--definitions", KAFKA_3).stdout)
    assert {one["type"] for one in listed} == {"request", "response", "header"}
    assert len(listed) == 178
    assert len(json.loads(kfuzz("messages", "list", "--json", "--all", "--definitions", KAFKA_3).stdout)) == 186
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


def test_records_are_listed_by_log_and_number() -> None:
    done = kfuzz("messages", "list", "--definitions", f"records-{LATEST}")
    lines = done.stdout.splitlines()
    assert lines[0] == "   0  LegacyOffsetCommitKey                       coordinator-key    0       flexible none"
    numbers = [
        (line.split()[2].partition("-")[0], int(line.split()[0])) for line in lines if line[:4].strip().isdigit()
    ]
    assert numbers == sorted(numbers)
    assert {log for log, _ in numbers} == {"coordinator", "metadata"}
    assert lines[-1] == "83 messages"


def test_a_record_is_found_among_the_messages_of_its_release() -> None:
    shown = kfuzz("messages", "show", "TopicRecord")
    assert shown.stdout.splitlines()[0] == "TopicRecord: metadata, number 2, versions 0, flexible 0+"
    form = {"name": "a", "topicId": "AAECAwQFBgcICQoLDA0ODw"}
    data = encode("TopicRecord", 0, {"name": "a", "topicId": bytes(range(16))})
    read = kfuzz("messages", "decode", "TopicRecord", "--version", "0", stdin=data)
    assert json.loads(read.stdout) == form
    assert encoded("TopicRecord", 0, json.dumps(form)) == data


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
    done = kfuzz("messages", "diff", tmp_path / "old.json", tmp_path / "new.json", code=1)
    assert done.stdout.splitlines() == [
        "incompatible TallyRequest.Tree.Count: default-changed: its default was -1, and is now -2",
        "1 incompatible, 0 fine",
    ]
    [change] = json.loads(kfuzz("messages", "diff", tmp_path / "old.json", tmp_path / "new.json", "--json").stdout)
    assert (change["code"], change["incompatible"], change["path"]) == ("default-changed", True, "Tree.Count")


def test_a_comparison_warns_of_a_renamed_tag_and_accepts_tags_that_end(tmp_path: Path) -> None:
    ended = DEFINITION.replace('"taggedVersions": "1+"', '"taggedVersions": "1"').replace('"Count"', '"Tally"')
    for name, text in (("old", DEFINITION), ("new", ended)):
        (tmp_path / f"{name}.json").write_text(text)
    done = kfuzz("messages", "diff", tmp_path / "old.json", tmp_path / "new.json", code=0)
    assert done.stdout.splitlines() == [
        "warning      TallyRequest.Tree.Count: tag-renamed: tag 0 is now called Tally; "
        "a field with another meaning needs a tag of its own",
        "warning      TallyRequest.Tree.Tally: tags-refused: tag 0 ends with version 1; "
        "keep the field with its tag and leave it unset, because no other field may ever have the tag",
        "0 incompatible, 2 to look at, 0 fine",
    ]
    listed = kfuzz("messages", "list", "--definitions", tmp_path / "new.json", code=2)
    assert 'taggedVersions "1" ends; write "1+", and leave the field unset' in listed.stderr


def test_an_import_makes_a_catalogue(tmp_path: Path) -> None:
    (tmp_path / "tally.json").write_text(DEFINITION)
    out = tmp_path / "out" / "mine.json"
    done = kfuzz("messages", "import", tmp_path / "tally.json", "--kafka", "9.9", "--out", out)
    assert (done.returncode, done.stdout) == (0, f"{out}: 1 messages of Kafka 9.9\n")
    assert load(out).messages == load(tmp_path / "tally.json").messages
    (tmp_path / "other.json").write_text(DEFINITION.replace('"-1"', '"-2"'))
    wrong = kfuzz(
        "messages", "import", out, tmp_path / "other.json", "--kafka", "9.9", "--out", tmp_path / "no", code=2
    )
    assert "defines TallyRequest differently" in wrong.stderr
    assert not (tmp_path / "no").exists()


def test_a_message_goes_from_bytes_to_json_and_back() -> None:
    data = encode("Fetch", 17, filled(catalogue().find("Fetch"), 17, 5))
    read = kfuzz("messages", "decode", "Fetch", "--version", "17", stdin=data, code=0)
    assert encoded("Fetch", 17, read.stdout) == data


def test_a_message_that_is_refused_is_reported_where_and_ends_with_1() -> None:
    done = kfuzz("messages", "decode", "ApiVersions", "--version", "3", stdin=bytes.fromhex("066b66757a7a0231"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "fatal: ApiVersionsRequest at byte 8: 1 bytes are needed here, and 0 are left [message-cut]\n"
    odd = kfuzz("messages", "decode", "ApiVersions", "--version", "3", stdin=bytes.fromhex("066b66757a7a02310061"))
    assert (odd.returncode, json.loads(odd.stdout)["clientSoftwareName"]) == (0, "kfuzz")
    assert "deviation: ApiVersionsRequest at byte 9: 1 bytes follow the message" in odd.stderr


def test_json_that_is_no_message_is_one_sentence() -> None:
    for text, words in (
        ("", "standard input is not JSON"),
        ("[]", "ApiVersionsRequest is a list; it must be an object"),
        ('{"clientSoftwareNmae": "x"}', "ApiVersionsRequest.clientSoftwareNmae is not a field"),
        ('{"clientSoftwareName": 7}', "clientSoftwareName is a number; it must be a string"),
        ('{"clientSoftwareName": null}', "clientSoftwareName is None; it must not be in version 3"),
        ('{"_unknownTaggedFields": [{"tag": 1}]}', "must be an object such as"),
    ):
        assert words in refused("messages", "encode", "ApiVersions", "--version", "3", stdin=text.encode())


def test_definitions_that_do_not_go_together_are_one_sentence_and_exit_2(tmp_path: Path) -> None:
    for name, key in (("OneRequest", 7), ("OneResponse", 8)):
        kind = "request" if name == "OneRequest" else "response"
        (tmp_path / f"{name}.json").write_text(
            f'{{"apiKey": {key}, "type": "{kind}", "name": "{name}", "validVersions": "0", '
            '"flexibleVersions": "none", "fields": []}'
        )
    sentence = "OneResponse has apiKey 8, but OneRequest has 7; give both the same\n"
    out = tmp_path / "out.json"
    for words in (
        ["list", "--definitions", tmp_path],
        ["import", tmp_path, "--kafka", "1", "--out", out],
        ["import", tmp_path / "OneRequest.json", tmp_path / "OneResponse.json", "--kafka", "1", "--out", out],
    ):
        assert refused("messages", *words).endswith(f"OneResponse.json: {sentence}")
        assert not out.exists()


def test_a_decoded_message_has_no_control_characters() -> None:
    name = "a\x1b[2J\x9b\u202e\x7f"
    body = encode("ApiVersionsRequest", 3, {"clientSoftwareName": name, "clientSoftwareVersion": "1"})
    done = kfuzz("messages", "decode", "ApiVersions", "--version", "3", stdin=body)
    assert {char for char in done.stdout if not char.isprintable()} <= {"\n"}
    assert json.loads(done.stdout)["clientSoftwareName"] == name
