"""The tree of parts: after a change, lengths, counts and CRCs are right again, or wrong by as much as before."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
from conftest import counts

from kfuzz import records
from kfuzz.edit.tree import RIGHT, Message, Node, tree_of
from kfuzz.messages.catalogues import catalogue, newest
from kfuzz.messages.codec import decode, encode
from kfuzz.messages.sample import filled
from kfuzz.mutate import Mutator
from kfuzz.mutate.engine import seal
from kfuzz.records import CODECS, Codec, Record, RecordBatch
from kfuzz.vectors import load_suite


def batch(codec: Codec = "none", magic: int = 2) -> bytes:
    """A batch of three records, with a header if there are headers."""
    headers = [(b"h", b"x"), (b"g", None)] if magic == 2 else []
    made = [Record(i, 7, b"key", b"value %d" % i, headers) for i in range(3)]
    return records.encode([RecordBatch(0, 2, made, compression=codec, magic=magic)])


def named(tree: Node, name: str) -> Node:
    """The field with this whole path."""
    [node] = [node for node in tree.leaves() if node.name == name]
    return node


def nodes(tree: Node) -> list[Node]:
    return [node for part in tree.parts for node in (part, *nodes(part))]


@pytest.mark.parametrize("mutants", counts(100, 5_000, 20_000))
def test_a_tree_is_the_same_bytes_whatever_they_are(mutants: int) -> None:
    inputs: list[tuple[bytes, Message | None]] = [(Mutator(7).input_at(i), None) for i in range(mutants)]
    step = 1 if mutants > 100 else 5
    for vector in islice(load_suite(kinds=("records", "message")), 0, None, step):
        version = vector.options.get("version", 0)
        if vector.size < 2000:
            message = None if vector.kind == "records" else (newest(vector.options["message"], version), version)
            inputs.append((vector.data, message))
    for data, message in inputs:
        tree = tree_of(data, message)
        assert tree.data == tree.written({}) == data
        # Nothing changes with their own bytes in place of nodes. Other compressors make other bytes.
        leaves = [node for node in tree.leaves() if node.kind in ("number", "contents", "value")]
        if all(node.codec == "none" for node in nodes(tree)):
            assert tree.written({node: node.data for node in leaves[:40]}) == data


@pytest.mark.parametrize(
    ("codec", "magic"), [*((codec, 2) for codec in CODECS), ("gzip", 0), ("snappy", 1), ("lz4", 1)]
)
def test_records_can_be_removed_and_changed_also_in_compressed_payloads_and_wrappers(codec: Codec, magic: int) -> None:
    tree = tree_of(batch(codec, magic))
    inside = "batch[0]" if codec == "none" else "batch[0].payload"
    [first] = [node for node in nodes(tree) if node.name == f"{inside}.records[0]"]
    key, value = (named(tree, f"{inside}.records[1].{field}") for field in ("key", "value"))
    [made] = records.decode(tree.written({first: None, key: None, value: b"other"}))
    assert [(record.key, record.value) for record in made.records] == [(None, b"other"), (b"key", b"value 2")]
    assert (made.compression, made.magic) == (codec, magic)


def test_headers_and_contents_can_be_removed() -> None:
    tree = tree_of(batch())
    [header] = [node for node in nodes(tree) if node.name == "batch[0].records[0].headers[0]"]
    key = named(tree, "batch[0].records[1].headers[0].key")
    [made] = records.decode(tree.written({header: None, key: b""}))
    assert made.records[0].headers == ((b"g", None),)
    assert made.records[1].headers == ((b"", b"x"), (b"g", None))


def test_what_was_wrong_stays_wrong_by_as_much_and_can_be_made_right() -> None:
    good = batch()
    wrong = seal(good[:57] + (9).to_bytes(4, "big") + good[61:], True, True)
    broken_crc = wrong[:17] + b"\0\0\0\0" + wrong[21:]
    for data, has_crc in ((wrong, True), (broken_crc, False)):
        tree = tree_of(data)
        [record] = [node for node in nodes(tree) if node.name == "batch[0].records[0]"]
        count, crc = named(tree, "batch[0].record_count"), named(tree, "batch[0].crc")
        fewer = tree_of(tree.written({record: None}))
        assert named(fewer, "batch[0].record_count").number == 8
        assert (seal(fewer.data, False, True) == fewer.data) is has_crc
        assert len(records.decode(tree.written({record: None, count: RIGHT, crc: RIGHT}))[0].records) == 2
        # A number that is given is not repaired.
        kept = tree_of(tree.written({record: None, count: count.data, crc: crc.data}))
        assert (named(kept, "batch[0].record_count").number, named(kept, "batch[0].crc").data) == (9, crc.data)


@pytest.mark.parametrize("version", [4, 12, 17])
def test_elements_and_tagged_fields_of_a_message_can_be_removed(version: int) -> None:
    definition = catalogue().find("FetchRequest")
    values: dict[str, Any] = filled(definition, version, 11)
    values["topics"] = [{"partitions": [{"partition": number} for number in (1, 2)]}] * 2
    tree = tree_of(encode(definition, version, values), (definition, version))
    assert tree.data == encode(definition, version, values)
    before = decode(definition, version, tree.data)
    [partitions] = [node for node in nodes(tree) if node.name == "FetchRequest.topics[1].partitions"]
    tagged = [node for node in nodes(tree) if node.name == "FetchRequest.tag count" and node.items]
    gone = [*partitions.items[0], *(node for count in tagged for node in count.items[-1])]
    after = decode(definition, version, tree.written(dict.fromkeys(gone)))
    assert after["topics"][0] == before["topics"][0]
    assert after["topics"][1]["partitions"] == before["topics"][1]["partitions"][1:]
    assert len(tagged) == (version >= 12)
