"""The catalogues say what the jars say, and any jar, folder or file can stand in for them."""

from __future__ import annotations

import json
import zipfile
from collections import Counter
from pathlib import Path

import pytest
from conftest import require_tool

from kfuzz.conformance.broker import artefacts
from kfuzz.conformance.testees import all_testees, select
from kfuzz.errors import UsageError
from kfuzz.messages.catalogue import LATEST, RELEASES, catalogue, condense, load

ROOT = Path(__file__).resolve().parents[2]
DEFINITION = """{ "name": "DataOfMine", "type": "data", "validVersions": "0", "flexibleVersions": "none", "fields": [
  { "name": "Value", "type": "int32", "versions": "0+", "about": "Prose is not kept." } ] }"""


@pytest.mark.java
@pytest.mark.parametrize("release", RELEASES)
def test_the_catalogue_is_what_the_jar_makes(release: str) -> None:
    """From the Maven artefact that the testee is built with."""
    require_tool("mvn", "install Maven and a JDK")
    [testee] = select(all_testees(), [f"kafka-clients@{release}"])
    testee.make_ready()
    jar = ROOT / "testees" / "kafka-clients" / "target" / release / "lib" / f"kafka-clients-{release}.jar"
    committed = (ROOT / "kfuzz" / "messages" / "catalogues" / f"{release}.json").read_bytes()
    assert condense([load(jar)], release) == committed


@pytest.mark.java
def test_what_coordinators_keep_in_their_logs_is_read_from_their_own_jars() -> None:
    """From the artefacts that the real broker is started from."""
    require_tool("mvn", "install Maven and a JDK")
    testee = artefacts()
    testee.make_ready()
    assert testee.folder is not None
    found = {}
    for name in ("kafka-group-coordinator", "kafka-transaction-coordinator"):
        messages = load(testee.folder / "target" / "lib" / f"{name}-{testee.version}.jar").messages
        found[name] = Counter(message.kind for message in messages.values())
    assert found == {
        "kafka-group-coordinator": {"coordinator-key": 22, "coordinator-value": 22},
        "kafka-transaction-coordinator": {"coordinator-key": 1, "coordinator-value": 1},
    }


def test_what_kafka_has_is_there() -> None:
    old, new = catalogue("3.9.2"), catalogue(LATEST)
    kinds = [[sum(one.kind == kind for one in source.messages.values()) for kind in ("request", "response", "header")]
             for source in (old, new)]  # fmt: skip
    assert kinds == [[88, 88, 2], [95, 95, 2]]
    # As many as FACTS count of APIs with versions, and of API, kind and version.
    alive = [one for one in new.messages.values() if one.kind == "request" and one.valid_versions]
    assert len(alive) == 91
    on_the_wire = ("request", "response", "header")
    versions = [sum(len(list(one.valid_versions)) for one in source.messages.values() if one.kind in on_the_wire)
                for source in (old, new)]  # fmt: skip
    assert versions == [651, 622]


def test_a_catalogue_is_the_same_when_it_is_condensed_again(tmp_path: Path) -> None:
    for release in RELEASES:
        once = condense([catalogue(release)], release)
        (tmp_path / "again.json").write_bytes(once)
        again = load(tmp_path / "again.json")
        assert again.messages == catalogue(release).messages
        assert condense([again], release) == once
        assert b"about" not in once


def test_jars_folders_and_files_are_read_alike(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "deep" / "message").mkdir(parents=True)
    (folder / "deep" / "message" / "DataOfMine.json").write_text(DEFINITION)
    with zipfile.ZipFile(tmp_path / "some.jar", "w") as jar:
        jar.write(folder / "deep" / "message" / "DataOfMine.json", "common/message/DataOfMine.json")
        jar.writestr("common/other/ignored.json", "no definition")
        jar.writestr("common/message/ignored.txt", "no definition")
    single = folder / "deep" / "message" / "DataOfMine.json"
    sources = [load(source).messages for source in (folder, tmp_path / "some.jar", single)]
    assert list(sources[0]) == ["DataOfMine"]
    assert sources[0] == sources[1] == sources[2]


def test_a_message_is_found_in_any_case_and_a_request_without_its_ending() -> None:
    new = catalogue()
    assert new.find("fetch").name == new.find("FETCHREQUEST").name == "FetchRequest"
    assert new.find("RequestHeader").kind == "header"
    with pytest.raises(UsageError, match="no message called 'fetsch'"):
        new.find("fetsch")
    with pytest.raises(UsageError, match=r"there are .*OffsetFetchRequest"):
        new.find("ffsetFetc")


def test_a_source_that_is_none_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("no catalogue")
    (tmp_path / "latin.json").write_bytes(b'{"name": "\xe4"}')
    (tmp_path / "other.json").write_text('{"format": "kfuzz-vectors/1"}')
    (tmp_path / "odd.json").write_text('{"format": "kfuzz-messages/1", "messages": 7}')
    wrong = DEFINITION.replace("int32", "int33")
    (tmp_path / "wrong.json").write_text(json.dumps({"format": "kfuzz-messages/1", "messages": [json.loads(wrong)]}))
    with zipfile.ZipFile(tmp_path / "empty.jar", "w") as jar:
        jar.writestr("README", "nothing")
    with zipfile.ZipFile(tmp_path / "twice.jar", "w") as jar:
        jar.writestr("a/message/A.json", DEFINITION)
        jar.writestr("b/message/A.json", DEFINITION)
    good = (tmp_path / "twice.jar").read_bytes()
    (tmp_path / "broken.jar").write_bytes(good[:40] + b"\xff" * 20 + good[60:])
    for name, words in (
        ("nowhere", "neither a file nor a folder"),
        ("empty", "has no definitions"),
        ("text", r"text:1: 'n' where a value belongs"),
        ("latin.json", "byte 10 is not UTF-8"),
        ("other.json", "no catalogue of messages"),
        ("odd.json", "messages must be a list"),
        ("wrong.json", 'type "int33" does not exist'),
        ("empty.jar", "has no definitions"),
        ("twice.jar", "DataOfMine is defined twice"),
        ("broken.jar", "cannot be read as a jar"),
    ):
        with pytest.raises(UsageError, match=words):
            load(tmp_path / name)
    with pytest.raises(UsageError, match=r"no catalogue of Kafka 0\.8"):
        catalogue("0.8")
