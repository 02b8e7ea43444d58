"""The catalogues equal the jars' definitions, and any jar, folder or file can be used instead of them."""

from __future__ import annotations

import json
import zipfile
from collections import Counter
from pathlib import Path

import pytest
from conftest import require_tool

from kfuzz.conformance.broker.real import artefacts
from kfuzz.conformance.protocol.testees import all_testees, select
from kfuzz.errors import UsageError
from kfuzz.kafka import KAFKA_3, LATEST, RELEASES
from kfuzz.messages import catalogues
from kfuzz.messages.catalogues import CARRIED, RECORDS, catalogue, condense, has_same_names, load, valid_versions
from tools.release import CLIENT_JARS, RECORD_JARS, catalogues_of

ROOT = Path(__file__).resolve().parents[2]
DEFINITION = """{ "name": "DataOfMine", "type": "data", "validVersions": "0", "flexibleVersions": "none", "fields": [
  { "name": "Value", "type": "int32", "versions": "0+", "about": "Prose is not kept." } ] }"""


@pytest.mark.java
@pytest.mark.parametrize("release", RELEASES)
def test_the_catalogues_are_what_the_jars_make(release: str) -> None:
    """Uses the Maven artefacts that the testee is built with."""
    require_tool("mvn", "install Maven and a JDK")
    [testee] = select(all_testees(), [f"kafka-clients@{release}"])
    testee.make_ready()
    folder = ROOT / "testees" / "kafka-clients" / "target" / release / "lib"
    for name, jars in ((release, CLIENT_JARS), (RECORDS[release], RECORD_JARS)):
        committed = (ROOT / "kfuzz" / "messages" / "definitions" / f"{name}.json").read_bytes()
        assert condense(catalogues_of(folder, release, jars).values(), release) == committed


@pytest.mark.java
@pytest.mark.full
def test_the_definitions_of_stored_records_come_from_the_jars_of_the_broker() -> None:
    """Uses the artefacts of the real broker."""
    require_tool("mvn", "install Maven and a JDK")
    testee = artefacts()
    testee.make_ready()
    assert testee.folder is not None
    jars = catalogues_of(testee.folder / "target" / testee.version / "lib", testee.version, RECORD_JARS)
    assert {name: Counter(message.kind for message in jar.messages.values()) for name, jar in jars.items()} == {
        "kafka-group-coordinator": {"coordinator-key": 22, "coordinator-value": 22},
        "kafka-metadata": {"metadata": 27},
        "kafka-raft": {"data": 1},
        "kafka-share-coordinator": {"coordinator-key": 2, "coordinator-value": 2},
        "kafka-storage": {"metadata": 4, "data": 1},
        "kafka-transaction-coordinator": {"coordinator-key": 1, "coordinator-value": 1},
    }


def test_the_catalogue_has_the_known_messages_of_kafka() -> None:
    old, new = catalogue(KAFKA_3), catalogue(LATEST)
    kinds = [[sum(one.kind == kind for one in source.messages.values()) for kind in ("request", "response", "header")]
             for source in (old, new)]  # fmt: skip
    assert kinds == [[88, 88, 2], [95, 95, 2]]
    # The number of APIs that have versions; below, the number of all versions of all kinds of APIs.
    alive = [one for one in new.messages.values() if one.kind == "request" and one.valid_versions]
    assert len(alive) == 91
    on_the_wire = ("request", "response", "header")
    versions = [sum(len(list(one.valid_versions)) for one in source.messages.values() if one.kind in on_the_wire)
                for source in (old, new)]  # fmt: skip
    assert versions == [651, 622]


@pytest.mark.parametrize("release", RELEASES)
def test_each_response_has_the_api_key_and_the_versions_of_its_request(release: str) -> None:
    messages = catalogue(release).messages.values()
    requests, responses = (
        {one.name.removesuffix(ending): (one.api_key, one.valid_versions) for one in messages if one.kind == kind}
        for kind, ending in (("request", "Request"), ("response", "Response"))
    )
    assert requests == responses
    # The key identifies a request.
    keys = [key for key, _ in requests.values()]
    assert len(set(keys)) == len(keys) > 80
    header = {field.name: str(field.type) for field in catalogue(release).find("RequestHeader").fields}
    assert (header["RequestApiKey"], header["RequestApiVersion"]) == ("int16", "int16")


def test_the_catalogue_has_the_records_that_a_broker_stores() -> None:
    kinds = [Counter(one.kind for one in catalogue(name).messages.values()) for name in RECORDS.values()]
    # In Kafka 3.9, records of coordinators have the kind data, and those of share and streams groups do not exist.
    assert kinds == [
        {"metadata": 29, "data": 25},
        {"metadata": 31, "coordinator-key": 25, "coordinator-value": 25, "data": 2},
    ]
    versions = [sum(len(list(one.valid_versions)) for one in catalogue(name).messages.values())
                for name in RECORDS.values()]  # fmt: skip
    assert versions == [74, 104]


def test_no_record_is_called_as_a_message_of_the_clients() -> None:
    for release, records in RECORDS.items():
        names = [[name.lower() for name in catalogue(one).messages] for one in (release, records)]
        assert not set(names[0]) & set(names[1])


def test_a_carried_catalogue_is_what_the_reader_of_definitions_makes_of_its_file() -> None:
    for name in CARRIED:
        whole = load(Path(catalogues.__file__).with_name("definitions") / f"{name}.json")
        assert (catalogue(name).source, dict(catalogue(name).messages)) == (whole.source, whole.messages)
        assert list(catalogue(name).messages) == list(whole.messages)
        assert valid_versions(name) == {one.name: one.valid_versions for one in whole.messages.values()}
        assert "NoSuchMessage" not in catalogue(name).messages
        assert catalogue(name).messages.get("NoSuchMessage") is None


def test_a_catalogue_is_the_same_when_it_is_condensed_again(tmp_path: Path) -> None:
    for name in CARRIED:
        once = condense([catalogue(name)], name)
        (tmp_path / "again.json").write_bytes(once)
        again = load(tmp_path / "again.json")
        assert again.messages == catalogue(name).messages
        assert condense([again], name) == once
        assert b"about" not in once


def test_a_default_of_any_text_is_kept_when_a_catalogue_is_condensed(tmp_path: Path) -> None:
    text = {"name": "Text", "type": "string", "versions": "0", "default": "ü\ud800"}
    odd = {"name": "Odd", "type": "data", "validVersions": "0", "flexibleVersions": "none", "fields": [text]}
    (tmp_path / "odd.json").write_text(json.dumps(odd))
    (tmp_path / "condensed.json").write_bytes(condense([load(tmp_path / "odd.json")], "1"))
    assert load(tmp_path / "condensed.json").messages == load(tmp_path / "odd.json").messages


def test_jars_folders_and_files_are_read_alike(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "deep" / "message").mkdir(parents=True)
    (folder / "deep" / "message" / "DataOfMine.json").write_text(DEFINITION)
    with zipfile.ZipFile(tmp_path / "some.jar", "w") as jar:
        jar.write(folder / "deep" / "message" / "DataOfMine.json", "common/message/DataOfMine.json")
        jar.writestr("common/metadata/OtherOfMine.json", DEFINITION.replace("DataOf", "OtherOf"))
        jar.writestr("common/other/ignored.json", "no definition")
        jar.writestr("common/message/ignored.txt", "no definition")
    single = folder / "deep" / "message" / "DataOfMine.json"
    sources = [dict(load(source).messages) for source in (folder, tmp_path / "some.jar", single)]
    other = sources[1].pop("OtherOfMine")
    assert list(sources[0]) == ["DataOfMine"]
    assert sources[0] == sources[1] == sources[2]
    assert other.fields == sources[0]["DataOfMine"].fields


def test_a_message_is_found_in_any_case_and_a_request_without_its_ending() -> None:
    new = catalogue()
    assert new.find("fetch").name == new.find("FETCHREQUEST").name == "FetchRequest"
    assert new.find("RequestHeader").kind == "header"
    with pytest.raises(UsageError, match="no message called 'fetsch'"):
        new.find("fetsch")
    with pytest.raises(UsageError, match=r"similar names are .*OffsetFetchRequest"):
        new.find("ffsetFetc")


def test_a_record_is_found_by_name_in_its_release() -> None:
    assert catalogue().find("partitionrecord") == catalogue(RECORDS[LATEST]).messages["PartitionRecord"]
    assert catalogue(KAFKA_3).find("OffsetCommitKey").kind == "data"
    assert catalogue(LATEST).find("OffsetCommitKey").kind == "coordinator-key"
    with pytest.raises(UsageError, match=r"similar names are RemoteLogSegmentMetadataRecord, .*"):
        catalogue().find("logsegmentmetadata")
    with pytest.raises(UsageError, match=r"shows all, and with --definitions records-3\.9\.2 the records"):
        catalogue(KAFKA_3).find("ClearElrs")
    with pytest.raises(
        UsageError, match=r"records-4\.4\.0 has no message called 'Fetch'; `kfuzz messages list` shows all$"
    ):
        catalogue(RECORDS[LATEST]).find("Fetch")


def test_a_source_that_is_none_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("no catalogue")
    (tmp_path / "latin.json").write_bytes(b'{"name": "\xe4"}')
    (tmp_path / "other.json").write_text('{"format": "kfuzz-vectors/1"}')
    (tmp_path / "odd.json").write_text('{"format": "kfuzz-messages/1", "messages": 7}')
    (tmp_path / "nothing.json").write_text('{"format": "kfuzz-messages/1", "messages": []}')
    wrong = DEFINITION.replace("int32", "int33")
    (tmp_path / "wrong.json").write_text(json.dumps({"format": "kfuzz-messages/1", "messages": [json.loads(wrong)]}))
    with zipfile.ZipFile(tmp_path / "empty.jar", "w") as jar:
        jar.writestr("README", "nothing")
    with zipfile.ZipFile(tmp_path / "twice.jar", "w") as jar:
        jar.writestr("a/message/A.json", DEFINITION)
        jar.writestr("b/message/A.json", DEFINITION)
    with zipfile.ZipFile(tmp_path / "large.jar", "w", zipfile.ZIP_DEFLATED) as jar:
        jar.writestr("a/message/A.json", DEFINITION + " " * (16 << 20))
    for name, method in (("deflated.jar", zipfile.ZIP_DEFLATED), ("lzma.jar", zipfile.ZIP_LZMA)):
        with zipfile.ZipFile(tmp_path / name, "w", method) as jar:
            jar.writestr("a/message/A.json", DEFINITION)
        with (tmp_path / name).open("r+b") as file:
            # Inside the compressed bytes.
            file.seek(60)
            file.write(b"\xff" * 20)
    good = (tmp_path / "twice.jar").read_bytes()
    (tmp_path / "broken.jar").write_bytes(good[:40] + b"\xff" * 20 + good[60:])
    for name, words in (
        ("nowhere", "neither a file nor a folder"),
        ("empty", "has no definitions"),
        ("text", r"text:1: expected a value, found 'n'"),
        ("latin.json", "byte 10 is not UTF-8"),
        ("other.json", "neither a catalogue nor a definition"),
        ("odd.json", "messages must be a list"),
        ("nothing.json", "messages must be a list of definitions"),
        ("wrong.json", 'type "int33" does not exist'),
        ("empty.jar", "has no definitions"),
        ("twice.jar", "DataOfMine is defined twice"),
        ("broken.jar", "cannot be read as a jar"),
        ("deflated.jar", "cannot be read as a jar: Error -3"),
        ("lzma.jar", "cannot be read as a jar: Corrupt input data"),
        ("large.jar", "large.jar: up to a/message/A.json, its definitions have more than 16777216 bytes"),
    ):
        with pytest.raises(UsageError, match=words):
            load(tmp_path / name)
    with pytest.raises(UsageError, match=r"no catalogue of Kafka 0\.8"):
        catalogue("0.8")


def test_a_release_that_renamed_a_field_or_lacks_the_message_is_told_from_the_newest() -> None:
    assert has_same_names(LATEST, "FetchRequest", 12)
    assert has_same_names(KAFKA_3, "FetchRequest", 12)
    # Kafka 3 has no version 18.
    assert not has_same_names(KAFKA_3, "FetchRequest", 18)
    renamed = [
        (name, version)
        for name, message in catalogue(KAFKA_3).messages.items()
        if name in catalogue(LATEST).messages
        for version in message.valid_versions
        if version in catalogue(LATEST).messages[name].valid_versions and not has_same_names(KAFKA_3, name, version)
    ]
    assert ("VoteRequest", 0) in renamed


def api(name: str, key: int, versions: str = "0-1") -> str:
    kind = "request" if name.endswith("Request") else "response"
    return json.dumps(
        {
            "apiKey": key, "type": kind, "name": name, "validVersions": versions, "flexibleVersions": "none",
            "fields": [],
        }
    )  # fmt: skip


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (
            [api("OneRequest", 7), api("TwoRequest", 7)],
            "TwoRequest has apiKey 7, like OneRequest; give each request a number of its own",
        ),
        (
            [api("OneResponse", 7), api("TwoResponse", 7)],
            "TwoResponse has apiKey 7, like OneResponse; give each response a number of its own",
        ),
        (
            [api("OneRequest", 7), api("OneResponse", 8)],
            "OneResponse has apiKey 8, but OneRequest has 7; give both the same",
        ),
        (
            [api("OneRequest", 7), api("TwoResponse", 7)],
            "TwoResponse has apiKey 7 like OneRequest; a response must be named after its request",
        ),
        (
            [api("OneRequest", 7, "0-2"), api("OneResponse", 7)],
            "OneResponse has validVersions 0-1, but OneRequest has 0-2; give both the same",
        ),
        (
            [api("OneRequest", 7), api("OneResponse", 7, "none")],
            "OneResponse has validVersions none, but OneRequest has 0-1; give both the same",
        ),
    ],
)
def test_numbers_and_versions_of_an_api_are_its_own_and_those_of_its_response(
    texts: list[str], words: str, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for text in texts:
        (folder / f"{json.loads(text)['name']}.json").write_text(text)
    with pytest.raises(UsageError, match=rf"folder/\w+\.json: {words}$"):
        load(folder)
    line = ",\n".join(texts)
    (tmp_path / "mine.json").write_text(f'{{"format": "kfuzz-messages/1", "kafka": "1", "messages": [\n{line}\n]}}')
    with pytest.raises(UsageError, match=rf"mine\.json:\d: {words}$"):
        load(tmp_path / "mine.json")
    # Each is valid without the other.
    alone = [load(folder / f"{json.loads(text)['name']}.json") for text in texts]
    with pytest.raises(UsageError, match=rf"folder/\w+\.json: {words}$"):
        condense(alone, "1")


def test_records_of_different_logs_may_have_one_number() -> None:
    numbers = Counter((one.kind, one.api_key) for one in catalogue(RECORDS[LATEST]).messages.values())
    assert numbers["metadata", 0] == 2
