"""Batches and records that end in the middle of a field; all lengths before it are right.

The batch length and the CRC match the remaining bytes, so that a reader reaches the cut.
"""

from __future__ import annotations

from collections.abc import Iterator

from kfuzz.vectors.recipes.making.builder import Raw, Record, batch, varint
from kfuzz.vectors.recipes.making.containers import stored
from kfuzz.vectors.recipes.theme import SMALL, Theme

# Every field except the second header's value has at least one byte, and most have two, to allow cuts inside.
FULL = Record(
    timestamp_delta=1000, offset_delta=0, key=b"key", value=b"value", headers=[(b"header", b"worth"), (b"other", None)]
)
NAMES = {
    "attributes": "attributes",
    "timestamp_delta": "timestamp delta",
    "offset_delta": "offset delta",
    "key_length": "key's length",
    "key": "key",
    "value_length": "value's length",
    "value": "value",
    "header_count": "header count",
    "headers[0].key_length": "first header's key length",
    "headers[0].key": "first header's key",
    "headers[0].value_length": "first header's value length",
    "headers[0].value": "first header's value",
    "headers[1].key_length": "second header's key length",
}


def theme() -> Theme:
    """The recipes of ``vectors/records/v2/truncation.json``."""
    made = Theme(
        "records/v2/truncation", "Batches and records that end in the middle; the lengths before the cut are right."
    )
    _records(made)
    _payloads(made)
    _headers(made)
    return made


def _parts() -> Iterator[tuple[str, bytes, bytes]]:
    """Each field after the record's length: its name, the bytes before it, its own bytes."""
    before = b""
    for name, data in FULL.parts()[1:]:
        if data:
            yield name, before, data
        before += data


def _records(made: Theme) -> None:
    """Records that end before or within a field; their length matches the cut."""
    for name, before, data in _parts():
        if name not in NAMES:
            continue
        # The record lacks the field's last byte; a one-byte field is missing entirely.
        body = before + data[:-1]
        # If a key or value is cut, its length reaches beyond the record.
        is_content = name.rpartition(".")[2] in ("key", "value")
        finding = "length-exceeds-record" if is_content else "record-truncated"
        if name == "headers[0].key_length":
            # The header count is 2, but no byte is left for the headers.
            finding = "header-count-exceeds-record"
        made.flag("RecordCut").invalid(
            f"record-ends-in-{_slug(name)}",
            f"the record ends {'within' if len(data) > 1 else 'before'} the {NAMES[name]}; its length matches",
            _cut_record(body),
            requirements=["RB-RECORD-1"],
            finding=finding,
            budget=SMALL,
        )


def _slug(name: str) -> str:
    return name.replace("headers[0].", "header-").replace("headers[1].", "second-header-").replace("_", "-")


def _cut_record(body: bytes) -> Raw:
    """A batch with a cut record, followed by a whole one."""
    second = Record(offset_delta=1, value=bytes(40)).encode()
    return batch(payload=varint(len(body)) + body + second, record_count=2, last_offset_delta=1, hostile=["payload"])


def _payloads(made: Theme) -> None:
    """Payloads that end within the second record."""
    first, second = Record(), Record(offset_delta=1, value=b"second value")
    whole = first.encode() + second.encode()
    cuts = {"last-byte": 1, "half": 9, "all-but-length": len(second.encode()) - 1}
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        for slug, missing in cuts.items():
            payload = whole[:-missing]
            made.flag("PayloadCut").invalid(
                f"payload-lacks-{slug}" + ("" if codec == "none" else f"-{codec}"),
                f"the second record lacks its last {missing} bytes" + ("" if codec == "none" else f" ({codec})"),
                batch(first, second, codec=codec, payload=stored(codec, payload)),
                requirements=["RB-RECORD-1", "RB-RECORDS-1"],
                finding="record-length-exceeds-payload",
                budget=SMALL,
            )


def _headers(made: Theme) -> None:
    ends = (
        ("leader-epoch", 16, "ends after the leader epoch"),
        ("magic", 17, "ends after the magic"),
        ("crc", 21, "ends after the CRC"),
        ("attributes", 23, "ends after the attributes"),
        ("last-offset-delta", 27, "ends after the last offset delta"),
        ("base-timestamp", 35, "ends after the base timestamp"),
        ("max-timestamp", 43, "ends after the max timestamp"),
        ("producer-id", 51, "ends after the producer id"),
        ("producer-epoch", 53, "ends after the producer epoch"),
        ("base-sequence", 57, "ends after the base sequence"),
        ("record-count-cut", 60, "lacks the last byte of the record count"),
    )
    for slug, size, what in ends:
        whole = batch(Record(), batch_length=size - 12)
        made.flag("HeaderCut").invalid(
            f"header-ends-at-{slug}",
            f"the header {what}, and the batch length matches; a whole batch follows",
            Raw(whole.data[:size], whole.layout, whole.batches),
            batch(Record(), base_offset=1),
            requirements=["RB-LENGTH-2", "RB-HEADER-1"],
            finding="batch-length-below-minimum",
            budget=SMALL,
        )
