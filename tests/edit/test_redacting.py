"""kfuzz redact: no contents are left, and the findings are those of the original."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from cli_driver import kfuzz

from kfuzz import records
from kfuzz.annotate.frames import frames_of
from kfuzz.edit.redacting import Redactor, changed_batches
from kfuzz.kafka import CODECS
from kfuzz.mutate.engine import seal
from kfuzz.records import Record, RecordBatch
from kfuzz.relay.recording import Recording
from kfuzz.vectors import find_vector, load_files

# Kafka's own words; the file of a recording has words of kfuzz.
OF_KAFKA = re.compile(rb"apache-kafka-java|[a-z.]+\.version|kfuzz-conversation|response")
# The findings of the others are about bytes that a compressor writes, or about a header's key itself.
KEPT_LEAST = 0.98


def contents(data: bytes) -> set[bytes]:
    """The keys, values, header keys and header values that can be read; none that may be there by chance."""
    rows = [row for batch in records.read(data).batches if not batch.control for row in batch.records]
    found = chain(*([row.key, row.value, *chain(*row.headers)] for row in rows))
    return {one for one in found if one is not None and len(one) >= 4}


def written(path: Path, codec: str = "none", **fields: object) -> bytes:
    rows = [
        Record(i, i, b"customer-%d" % (i % 3), b"secret value %d" % i, ((b"trace-id", b"\xff\xfe\xfd%d" % i),))
        for i in range(9)
    ]
    data = bytes(records.encode([RecordBatch(0, 8, rows, compression=codec)]))  # type: ignore[arg-type]
    path.write_bytes(data)
    return data


@pytest.mark.parametrize("part", [pytest.param(slice(None), marks=pytest.mark.full), slice(0, None, 12)])
def test_no_vector_keeps_contents_and_nearly_all_keep_their_findings(part: slice) -> None:
    vectors = [one for file in load_files() for one in file.vectors if one.kind == "records" and one.size < 1 << 16]
    changed = 0
    for vector in vectors[part]:
        data = bytes(vector.data)
        made = b"".join(Redactor(key=b"k").batches(data))
        changed += any(changed_batches(data, made))
        assert not [one for one in contents(data) | contents(made) if one in data and one in made], vector.id
    assert changed <= len(vectors[part]) * (1 - KEPT_LEAST)


@pytest.mark.parametrize("codec", CODECS)
def test_equal_contents_stay_equal_and_the_rest_is_kept(codec: str, tmp_path: Path) -> None:
    data = written(tmp_path / "in.log", codec)
    done = kfuzz("redact", tmp_path / "in.log", "--out", tmp_path / "out.log", "--secret", "a")
    assert (done.returncode, done.stderr) == (0, "")
    made = (tmp_path / "out.log").read_bytes()
    [before], [after] = records.decode(data), records.decode(made)
    for one, other in zip(before.records, after.records, strict=True):
        assert (one.offset, one.timestamp) == (other.offset, other.timestamp)
        assert [len(side or b"") for side in (one.key, one.value)] == [
            len(side or b"") for side in (other.key, other.value)
        ]
    assert len({row.key for row in after.records}) == 3
    assert after.compression == codec
    kfuzz("redact", tmp_path / "in.log", "--out", tmp_path / "other.log", "--keep-header-keys")
    assert records.decode((tmp_path / "other.log").read_bytes())[0].records[0].headers[0][0] == b"trace-id"
    assert contents((tmp_path / "other.log").read_bytes()).isdisjoint(contents(made))


def test_damage_stays_and_what_is_lost_is_said(tmp_path: Path) -> None:
    data = bytearray(written(tmp_path / "in.log", "gzip"))
    data[-1] ^= 1
    (tmp_path / "in.log").write_bytes(data + data[:40])
    assert kfuzz("redact", tmp_path / "in.log", "--out", tmp_path / "out.log").returncode == 0
    checked = [kfuzz("check", tmp_path / name, "--json").stdout for name in ("in.log", "out.log")]
    codes = [[one["code"] for one in json.loads(text)[0]["findings"]] for text in checked]
    assert codes[0] == codes[1] == ["crc-mismatch"]
    data = bytearray(find_vector("records/v2/headers/key-with-null-character").data)
    (tmp_path / "in.log").write_bytes(data)
    lost = kfuzz("redact", tmp_path / "in.log", "--out", tmp_path / "out.log", "--json")
    assert (lost.returncode, len(json.loads(lost.stdout)["changed"])) == (1, 2)


SECRET = b"SECRET-of-anna-SECRET"
HANDSHAKE = bytes.fromhex("0000001400110000000000010000") + b"\0\x05PLAIN" + b"\0"


def secrets() -> Iterator[bytes]:
    """Batches with a secret where no key and value is."""
    [row] = (Record(0, 0, b"k", b"v"),)
    batch = bytes(records.encode([RecordBatch(0, 0, [row])]))
    yield batch + SECRET
    yield batch + SECRET + batch
    for data in (batch + SECRET, batch[:57] + bytes(4) + SECRET):
        length = (len(data) - 12).to_bytes(4, "big")
        yield seal(data[:8] + length + data[12:], False, True)
    control = Record(0, 0, b"\0\0\0\0", b"\0\0\0\0\0\0", ((SECRET, SECRET),))
    yield bytes(records.encode([RecordBatch(0, 0, [control], control=True)]))
    # The flag alone makes no control record.
    yield bytes(records.encode([RecordBatch(0, 0, [Record(0, 0, SECRET, SECRET)], control=True)]))


def left(made: bytes) -> set[bytes]:
    """The parts of four bytes of the secret that are in ``made``."""
    return {SECRET[at : at + 4] for at in range(len(SECRET) - 3) if SECRET[at : at + 4] in made}


@pytest.mark.parametrize("data", list(secrets()), ids=("after", "between", "trailing", "no-records", "control", "flag"))
def test_a_secret_in_an_odd_place_is_replaced(data: bytes) -> None:
    assert left(data)
    assert left(b"".join(Redactor(key=b"k").batches(data))) == set()


@pytest.mark.parametrize("user", [b"", b"K\0", b"A", b"\0"])
def test_a_log_in_without_a_request_around_it_is_replaced(user: bytes) -> None:
    token = b"\0" + user + SECRET
    sent = HANDSHAKE[:3] + bytes([len(HANDSHAKE) - 4]) + HANDSHAKE[4:] + len(token).to_bytes(4, "big") + token
    made = b"".join(frame for _, frame in Redactor(key=b"k").capture(sent, None)[0])
    assert (len(made), left(made)) == (len(sent), set())


def test_a_recording_is_as_before_without_its_names(tmp_path: Path) -> None:
    vector = next(one for file in load_files() for one in file.vectors if one.kind == "conversation")
    recorded, folder = Recording.of(vector), tmp_path / "in"
    folder.mkdir()
    start = {"format": "kfuzz-conversation/1", "brokers": [{"broker": "db.corp:1", "place": "db.corp:1"}]}
    names = ("event", "connection", "ms", "at", "size", "broker", "place")
    lines = [start, *({name: getattr(one, name) for name in names} for one in recorded.events)]
    (folder / "conversation.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    sent = bytes(recorded.data(1, "request"))
    (folder / "1.requests").write_bytes(sent)
    (folder / "1.responses").write_bytes(recorded.data(1, "response"))
    done = kfuzz("redact", folder, "--out", tmp_path / "out")
    assert (done.returncode, done.stdout) == (0, f"{tmp_path / 'out'}: the findings are those of the original\n")
    made = b"".join(path.read_bytes() for path in (tmp_path / "out").iterdir())
    words = set(re.findall(rb"[A-Za-z][\w.-]{5,}", sent + bytes(recorded.data(1, "response")) + b"db.corp"))
    assert not [word for word in words if word in made and not OF_KAFKA.fullmatch(word)]
    assert kfuzz("redact", folder / "1.requests", "--frames", "--out", tmp_path / "sent").returncode == 0
    kept = [(one.name, one.version, one.correlation_id) for one in frames_of((tmp_path / "sent").read_bytes())]
    assert kept == [(one.name, one.version, one.correlation_id) for one in frames_of(sent)]
