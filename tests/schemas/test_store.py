"""Where schemas come from: files, folders, the topic of a registry, and a registry that answers slowly or wrongly."""

from __future__ import annotations

import base64
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kfuzz.errors import UsageError
from kfuzz.logs.schemas import beside, open_schemas
from kfuzz.schemas import Schema
from kfuzz.schemas.registry import Registry
from kfuzz.schemas.store import of_folder, of_records

ANSWER = {"subject": "orders-value", "version": 3, "id": 7, "schema": '"long"'}


def test_a_folder_has_schemas_by_id_and_answers_of_a_registry(tmp_path: Path) -> None:
    (tmp_path / "subjects").mkdir()
    (tmp_path / "subjects" / "42.avsc").write_text('"string"')
    (tmp_path / "8.proto").write_text("message A {}")
    (tmp_path / "9.schema.json").write_text("{}")
    (tmp_path / "10.json").write_text(json.dumps({"schema": "{}", "schemaType": "JSON"}))
    # Named after its version.
    (tmp_path / "3.json").write_text(json.dumps(ANSWER))
    (tmp_path / "all.json").write_text(json.dumps([ANSWER | {"version": 4}]))
    (tmp_path / "other.avsc").write_text("no id")
    (tmp_path / "11.avsc").symlink_to(tmp_path / "8.proto")
    store = of_folder(tmp_path)
    kinds = {key: one.kind for key, one in store.ids.items()}
    assert kinds == {42: "AVRO", 8: "PROTOBUF", 9: "JSON", 10: "JSON", 7: "AVRO"}
    assert store.version("orders-value", 3) == Schema("AVRO", '"long"')


@pytest.mark.parametrize("name", ["nothing.txt", "empty", "missing.avsc"])
def test_a_place_without_schemas_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "nothing.txt").write_text("")
    with pytest.raises(UsageError, match=name):
        open_schemas([str(tmp_path / name)])


def test_records_of_the_topic_keep_deleted_schemas_and_others_are_passed_over() -> None:
    key = b'{"keytype":"SCHEMA","subject":"orders-value","version":3,"magic":1}'
    deleted = json.dumps(ANSWER | {"deleted": True}).encode()
    # An int cannot hold this version.
    huge = b'{"id":8,"schema":"x","references":[{"name":"a","subject":"b","version":1e999}]}'
    pairs = [(b'{"keytype":"NOOP"}', None), (key, deleted), (key, None), (key, b"{"), (key, huge)]
    store = of_records("the topic", pairs)
    assert store.find(8) is None
    assert store.find(7) == store.version("orders-value", 3) == Schema("AVRO", '"long"')


def test_the_topic_is_found_beside_the_data(tmp_path: Path) -> None:
    (tmp_path / "_schemas-0").mkdir()
    for place in (tmp_path, tmp_path / "orders-0", tmp_path / "orders-0" / "0.log"):
        assert beside(str(place)) == tmp_path / "_schemas-0"
    assert beside(str(tmp_path / "a" / "b" / "c")) is None
    assert beside("-") is None


@pytest.fixture
def asked() -> Iterator[tuple[str, list[tuple[str, str | None]]]]:
    seen: list[tuple[str, str | None]] = []

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append((self.path, self.headers["Authorization"]))
            name = self.path.removeprefix("/schemas/ids/")
            answers = {"7": (200, json.dumps(ANSWER)), "8": (200, "x"), "9": (302, ""), "401": (401, "{}")}
            status, body = answers.get(name, (404, "{}"))
            self.send_response(status)
            self.send_header("Location", "/schemas/ids/7")
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"127.0.0.1:{server.server_port}", seen
        server.shutdown()


def test_a_registry_is_asked_once_for_each_schema(asked: tuple[str, list[tuple[str, str | None]]]) -> None:
    place, seen = asked
    registry = Registry(f"http://me:p%40ss@{place}/")
    found = Schema("AVRO", '"long"')
    assert [registry.find(key) for key in (7, 7, 1, 1)] == [found, found, None, None]
    assert registry.version("a/b", 2) is None
    login = f"Basic {base64.b64encode(b'me:p@ss').decode()}"
    assert seen == [("/schemas/ids/7", login), ("/schemas/ids/1", login), ("/subjects/a%2Fb/versions/2", login)]
    assert "p@ss" not in registry.place
    for key, words in ((8, "not JSON"), (9, "answers 302"), (401, "KFUZZ_REGISTRY_LOGIN")):
        with pytest.raises(UsageError, match=words):
            registry.find(key)


@pytest.mark.parametrize("url", ["ftp://a", "http://[::1", "localhost:8081", "http://", "http://a:\udcff@127.0.0.1:1"])
def test_a_registry_that_cannot_be_asked_is_one_sentence(url: str) -> None:
    with pytest.raises(UsageError, match=r"registry is wrong|cannot be asked"):
        Registry(url).find(1)
