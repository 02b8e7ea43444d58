"""The oracles: each promise holds on the kept inputs, and each clause is seen to fail when its promise is broken."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kfuzz import records
from kfuzz.errors import EncodeError, UsageError
from kfuzz.fuzz import targets
from kfuzz.fuzz.decoded_bytes import skipped
from kfuzz.fuzz.packing import pack
from kfuzz.fuzz.seeding import CORPUS, read_hex, regressions, seeds, shapes
from kfuzz.fuzz.targets import TARGETS, OracleFailure, PlantedBug
from kfuzz.records import Reading, Record, RecordBatch, Verdict
from kfuzz.records.codecs import Decompressed
from kfuzz.wire.io.checksum import crc32c

PLAIN = records.encode_batch(
    RecordBatch(3, 4, [Record(3, 1000, b"k", b"v", ((b"h", b"x"),)), Record(4, 1001, None, b"")])
)
# A deviation: attribute bit 15 is unused.
DEVIANT = PLAIN[:17] + crc32c(b"\x80\0" + PLAIN[23:]).to_bytes(4, "big") + b"\x80\0" + PLAIN[23:]
RUN = TARGETS["record-batch"].run


def breaks(monkeypatch: pytest.MonkeyPatch, name: str, broken: Callable[..., Any], data: bytes = PLAIN) -> str:
    """The oracle's sentence once ``records.<name>`` is replaced; it must be content before that."""
    RUN(data)
    monkeypatch.setattr(records, name, broken)
    with pytest.raises(OracleFailure) as failure:
        RUN(data)
    return str(failure.value)


def changed_check(change: Callable[[Verdict], None]) -> Callable[..., Verdict]:
    real = records.check

    def check(data: Any, **options: Any) -> Verdict:
        reading = real(data, **options)
        change(reading)
        return reading

    return check


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.full)], ids=["a-third", "all"])
@pytest.mark.parametrize("name", [name for name in TARGETS if name != "canary"])
def test_every_seed_passes_its_target(name: str, step: int) -> None:
    found = seeds(TARGETS[name])
    assert len(found) > 10
    for data in found[::step]:
        TARGETS[name].run(data)


@pytest.mark.parametrize("name", list(TARGETS))
def test_every_kept_regression_passes_its_target(name: str) -> None:
    for file, data in regressions(TARGETS[name]):
        try:
            TARGETS[name].run(data)
        except Exception as error:
            pytest.fail(f"{file.name}: {error}")


def test_every_kept_regression_is_one_of_a_target_that_looks_at_it() -> None:
    for file in sorted((CORPUS / "regressions").rglob("*.*")):
        if file.suffix == ".json":
            assert file.with_suffix(".hex").is_file(), file
            continue
        name = file.parent.name
        assert file.suffix == ".hex", file
        assert read_hex(file), file
        for data in read_hex(file):
            # A differential reads record batches.
            assert not skipped(TARGETS["record-batch" if name == "differential" else name], data), file


def test_regressions_of_record_batch_are_found() -> None:
    assert regressions(TARGETS["record-batch"])


def test_an_exception_from_the_reader_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(data: Any, **options: Any) -> Reading:
        raise IndexError("out of range")

    monkeypatch.setattr(records, "read", read)
    with pytest.raises(IndexError):
        RUN(PLAIN)


@pytest.mark.parametrize(
    ("name", "value"),
    [("findings", []), ("batch_count", 7), ("record_count", 7), ("consumed", 7), ("partial_tail", True)],
)
def test_a_verdict_that_differs_from_the_objects_is_a_crash(
    monkeypatch: pytest.MonkeyPatch, name: str, value: object
) -> None:
    check = changed_check(lambda reading: setattr(reading, name, value))
    assert breaks(monkeypatch, "check", check, DEVIANT).startswith(f"{name}: ")


def test_a_strict_profile_that_lets_a_deviation_pass_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    real = records.check
    broken = breaks(monkeypatch, "check", lambda data, limits, profile="kafka": real(data, limits=limits), DEVIANT)
    assert "strict has a finding that is not fatal" in broken


def test_a_strict_profile_that_finds_less_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    real = records.check

    def check(data: Any, limits: records.Limits, profile: records.Profile = "kafka") -> Verdict:
        reading = real(data, limits=limits, profile=profile)
        return replace(reading, findings=[]) if profile == "strict" else reading

    assert breaks(monkeypatch, "check", check, DEVIANT).startswith("profile kafka finds")


def test_an_encoder_that_loses_headers_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    real = records.encode

    def encode(batches: list[RecordBatch]) -> bytes:
        return real(
            [replace(b, records=[Record(r.offset, r.timestamp, r.key, r.value) for r in b.records]) for b in batches]
        )

    assert breaks(monkeypatch, "encode", encode).startswith("batch[0].records[0]: ")


@pytest.mark.parametrize("name", ["base_sequence", "partition_leader_epoch", "max_timestamp"])
def test_an_encoder_that_changes_a_batch_field_is_a_crash(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    real = records.encode

    def encode(batches: list[RecordBatch]) -> bytes:
        return real([replace(batch, **{name: 123456}) for batch in batches])

    assert breaks(monkeypatch, "encode", encode).startswith(f"batch[0].{name}: ")


def test_an_encoder_that_drops_a_batch_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    real = records.encode
    broken = breaks(monkeypatch, "encode", lambda batches: real(batches[1:]), PLAIN + PLAIN)
    assert broken.startswith("2 batches become 1")


def test_an_encoder_that_refuses_what_was_read_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    def encode(batches: list[RecordBatch]) -> bytes:
        raise EncodeError("no room")

    assert breaks(monkeypatch, "encode", encode) == "encode refuses batches that read accepts: no room"


def test_an_encoder_that_adds_a_finding_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    assert breaks(monkeypatch, "encode", lambda batches: DEVIANT).endswith("adds findings: attributes-unused-bits")


def test_an_encoder_that_changes_canonical_bytes_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    real = records.encode
    assert breaks(monkeypatch, "encode", lambda batches: real(batches) + b"\0").startswith("canonical bytes change")


def broken_target(monkeypatch: pytest.MonkeyPatch, name: str, target: str, broken: Callable[..., Any]) -> str:
    """The sentence of the oracle of ``target`` once the function ``name`` that it calls is replaced."""
    TARGETS[target].run(PLAIN)
    monkeypatch.setattr(targets, name, broken)
    with pytest.raises(OracleFailure) as failure:
        TARGETS[target].run(PLAIN)
    return str(failure.value)


def test_batches_that_differ_from_what_is_read_at_once_are_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    real = records.batches
    broken = breaks(monkeypatch, "batches", lambda data, limits: list(real(data, limits=limits)) * 2)
    assert broken.startswith("read and batches differ: 1 batches become 2")


def test_a_refusal_that_only_reading_at_once_knows_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    assert breaks(monkeypatch, "batches", lambda data, limits: [], PLAIN[:-1] + b"!").startswith("read refuses ")


@pytest.mark.parametrize(
    ("column", "value"),
    [("batch", [1, 0]), ("offset", [3, 5]), ("timestamp", [1000, None]), ("key", [b"k", b""]), ("value", [b"v", None])],
)
def test_a_column_that_differs_from_the_objects_is_a_crash(
    monkeypatch: pytest.MonkeyPatch, column: str, value: list[Any]
) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    real = records.columns

    def columns(data: Any, limits: records.Limits) -> Any:
        made = real(data, limits=limits)
        at = made.schema.get_field_index(column)
        return made.set_column(at, made.schema.field(at), pyarrow.array(value, made.schema.field(at).type))

    TARGETS["columns"].run(PLAIN)
    monkeypatch.setattr(records, "columns", columns)
    with pytest.raises(OracleFailure, match="becomes the row"):
        TARGETS["columns"].run(PLAIN)


def test_columns_that_lack_a_record_or_refuse_what_is_read_are_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    real = records.columns
    monkeypatch.setattr(records, "columns", lambda data, limits: real(data, limits=limits).slice(1))
    with pytest.raises(OracleFailure, match="2 records become 1 rows"):
        TARGETS["columns"].run(PLAIN)
    monkeypatch.setattr(records, "columns", lambda data, limits: real(PLAIN[:-1] + b"!", limits=limits))
    with pytest.raises(OracleFailure, match="read refuses None, but columns "):
        TARGETS["columns"].run(PLAIN)
    monkeypatch.setattr(records, "columns", lambda data, limits: real(PLAIN, limits=limits))
    with pytest.raises(OracleFailure, match=r"read refuses .*, but columns do not"):
        TARGETS["columns"].run(PLAIN[:-1] + b"!")


# One record at offset 0, as a producer sends it.
PRODUCED = records.encode_batch(RecordBatch(0, 1, [Record(0, 1000, b"k", b"v"), Record(1, 1001, None, b"w")]))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda appended: replace(appended, last_offset=7), "append said 7"),
        (lambda appended: replace(appended, data=appended.data * 2), "does not store one whole batch"),
        (lambda appended: replace(appended, data=appended.data[:-1]), "does not store one whole batch"),
    ],
)
def test_a_broker_that_stores_something_else_is_a_crash(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[Any], Any], sentence: str
) -> None:
    TARGETS["broker"].run(PRODUCED)
    real = targets.append
    monkeypatch.setattr(targets, "append", lambda data, topic, limits: change(real(data, topic, limits=limits)))
    with pytest.raises(OracleFailure, match=sentence):
        TARGETS["broker"].run(PRODUCED)


def test_a_broker_that_takes_what_its_check_refuses_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    real = targets.append
    monkeypatch.setattr(targets, "append", lambda data, topic, limits: real(PRODUCED, topic, limits=limits))
    with pytest.raises(OracleFailure, match="append does not"):
        TARGETS["broker"].run(PRODUCED[:-1] + b"!")


def test_a_conversion_that_loses_a_record_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    real = targets.convert

    def convert(data: Any, magic: int, **options: Any) -> Any:
        made = real(data, magic, **options)
        return replace(made, data=records.encode(made.batches[1:]))

    assert "conversion to magic 0 loses records" in broken_target(monkeypatch, "convert", "log-tools", convert)


def test_a_conversion_of_what_is_refused_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    real = targets.convert
    monkeypatch.setattr(targets, "convert", lambda data, magic, **options: real(PLAIN, magic, **options))
    with pytest.raises(OracleFailure, match=r"bytes that read refuses \(.*\) are converted to magic 0"):
        TARGETS["log-tools"].run(PLAIN[:-1] + b"!")


def test_a_conversion_that_nobody_can_read_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    real = targets.convert

    def convert(data: Any, magic: int, **options: Any) -> Any:
        made = real(data, magic, **options)
        return replace(made, data=made.data[:-1])

    assert "converted to magic 0 cannot be read" in broken_target(monkeypatch, "convert", "log-tools", convert)


def test_a_compaction_that_keeps_too_much_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    real = targets.compact
    broken = broken_target(
        monkeypatch, "compact", "log-tools", lambda data, retain, **rest: real(data, lambda batch, record: True, **rest)
    )
    assert broken.startswith("compaction should keep [None]")


def test_a_control_record_that_is_written_as_another_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    marker = [Record(0, 1, bytes.fromhex("00000001"), bytes.fromhex("000000000007"))]
    data = records.encode_batch(RecordBatch(0, 0, marker, control=True, transactional=True))
    TARGETS["log-tools"].run(data)
    monkeypatch.setattr(targets, "encode_control", lambda record: (bytes(4), marker[0].value))
    with pytest.raises(OracleFailure, match="the control record "):
        TARGETS["log-tools"].run(data)


@pytest.mark.parametrize("data", shapes(TARGETS["compressed-batch"]), ids=lambda data: data[:24].hex())
def test_packing_makes_batches_that_are_read(data: bytes) -> None:
    packed = pack(data)
    assert packed is not None
    assert packed != data
    [batch] = records.decode(packed)
    assert batch.compression != "none"


def test_packing_leaves_alone_what_has_no_codec() -> None:
    assert pack(PLAIN) is None
    assert pack(PLAIN[:-1]) is None
    # Five codecs have names; the attributes have room for eight.
    for codec in (5, 6, 7):
        assert pack(PLAIN[:22] + bytes([codec]) + PLAIN[23:]) is None


@pytest.mark.parametrize(
    ("out", "sentence"),
    [
        (Decompressed(bytes(70_000), 1, "limit"), "the limit is 65536"),
        (Decompressed(b"x", 9_999, "whole"), "consumed 9999"),
        (Decompressed(b"x", 1, "whole"), "with a limit one byte too small, decompress ended whole"),
    ],
)
def test_a_decompressor_that_breaks_its_bounds_is_a_crash(
    monkeypatch: pytest.MonkeyPatch, out: Decompressed, sentence: str
) -> None:
    monkeypatch.setattr(targets, "decompress", lambda *arguments, **options: out)
    with pytest.raises(OracleFailure, match=sentence):
        TARGETS["compression"].run(b"\0payload")


def test_a_compressor_that_changes_the_bytes_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    real = targets.compress
    data = b"\0" + real("gzip", b"plain")
    TARGETS["compression"].run(data)
    monkeypatch.setattr(targets, "compress", lambda codec, plain, magic: real(codec, plain + b"!", magic=magic))
    with pytest.raises(OracleFailure, match="compressed again"):
        TARGETS["compression"].run(data)


def test_the_buffer_that_the_decoder_gets_has_no_byte_to_spare() -> None:
    empty = sys.getsizeof(targets.exact_buffer(b""))
    for size in (1, 16, 17, 61, 4096):
        assert sys.getsizeof(targets.exact_buffer(bytes(size))) == empty + size


def canary_input() -> bytes:
    """All gates open: eight bytes of key, twice as many of value, no headers, and the bits that go with these."""
    return records.encode_batch(RecordBatch(0, 0, [Record(0, 1, b"0\x80000000", b"v" * 16)]))


def test_the_canary_sings_for_the_input_that_opens_every_gate_and_for_no_neighbour() -> None:
    data = canary_input()
    with pytest.raises(PlantedBug):
        TARGETS["canary"].run(data)
    # From here on the CRC stands, or covers what follows.
    for at in range(17, len(data)):
        TARGETS["canary"].run(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])


def test_an_unknown_target_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="did you mean record-batch"):
        targets.find("record-bach")


def test_a_difference_names_the_first_record_that_differs() -> None:
    before, after = ([RecordBatch(0, 2, [Record(i, 1, None, value) for i in range(3)])] for value in (b"v", b"v"))
    after[0].records[1] = Record(1, 1, None, b"other")
    assert targets.difference(before, after).startswith("batch[0].records[1]: ")
