"""The target ``messages``: which message an input is, and that each clause of its oracle fails when it is broken."""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kfuzz.errors import EncodeError, MessageError
from kfuzz.findings import messages as message_findings
from kfuzz.fuzz import messages
from kfuzz.fuzz.building import compile_mutator
from kfuzz.fuzz.hook import prepare
from kfuzz.fuzz.messages import SELECTOR_SIZE, cannot_be_written, chosen, schema_of, selector
from kfuzz.fuzz.oracle import OracleFailure
from kfuzz.fuzz.seeding import seeds
from kfuzz.fuzz.targets import TARGETS
from kfuzz.messages import codec
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.schemas import schema

RUN = TARGETS["messages"].run
FETCH = catalogue().find("FetchRequest")
FRONT = selector(FETCH, 17)
VALUES = {"topics": [{"topicId": bytes(16), "partitions": [{"partition": 3}]}], "rackId": "r"}
# Nothing odd in it; a tag that nobody knows; a text that is no UTF-8; and a refusal, after a deviation.
PLAIN = FRONT + codec.encode(FETCH, 17, VALUES)
TAGGED = FRONT + codec.encode(FETCH, 17, VALUES | {"_unknownTaggedFields": [(9, b"\1\2")]})
DEVIANT = PLAIN.replace(b"\2r\0", b"\2\xff\0")
REFUSED = DEVIANT[:-1] + b"\7"
# As PLAIN, with the tagged field that stands at its default all the same.
SAID_BY_DEFAULT = PLAIN[:-1] + b"\1\0\1\0"


def broken(monkeypatch: pytest.MonkeyPatch, place: Any, name: str, change: Callable[..., Any], data: bytes) -> str:
    """The oracle's sentence once ``place.name`` is replaced; it must be content before that."""
    RUN(data)
    monkeypatch.setattr(place, name, change)
    with pytest.raises(OracleFailure) as failure:
        RUN(data)
    return str(failure.value)


def broken_program(monkeypatch: pytest.MonkeyPatch, name: str, change: Callable[[Any], Any], data: bytes) -> str:
    """The same of a method of the compiled program, whose answer is changed."""
    program = schema(FETCH, 17)
    parts = {one: getattr(program, one) for one in ("name", "check", "decode", "decode_objects", "encode", "places")}
    real = parts[name]
    fake = SimpleNamespace(**parts | {name: lambda body: change(real(body))})
    return broken(monkeypatch, messages, "schema", lambda definition, version: fake, data)


# ------------------------------------------------------------------------------------------------- which message


def test_every_request_response_and_header_of_every_version_has_its_selector() -> None:
    wanted = [
        (definition, version)
        for definition in catalogue().messages.values()
        if definition.kind in ("request", "response", "header")
        for version in definition.valid_versions
    ]
    assert [chosen(selector(*one) + b"rest") for one in wanted] == wanted


@pytest.mark.parametrize(
    ("name", "version", "front"),
    [
        ("FetchRequest", 17, "000111"),
        ("FetchResponse", 4, "010104"),
        ("RequestHeader", 2, "020002"),
        ("ResponseHeader", 0, "020100"),
    ],
)
def test_selectors_stay_as_they_are_for_kept_inputs_begin_with_them(name: str, version: int, front: str) -> None:
    assert selector(catalogue().find(name), version).hex() == front


@pytest.mark.parametrize("front", [b"", b"\0\1", b"\0\1\x13", b"\3\1\1", b"\0\xff\0"])
def test_an_input_of_no_message_is_passed_over(front: bytes) -> None:
    assert chosen(front) is None
    assert schema_of(front) is None
    RUN(front)


# ------------------------------------------------------------------------------------------------- mutation


Mutate = Callable[[bytes, int, int], bytes]


def loaded(path: Path) -> Mutate:
    """A hook of its own for the target ``messages``."""
    library = ctypes.CDLL(str(path))
    prepare(library, TARGETS["messages"])

    def mutate(data: bytes, size_max: int, seed: int) -> bytes:
        buffer = ctypes.create_string_buffer(data, max(size_max, len(data), 1))
        size = library.LLVMFuzzerCustomMutator(buffer, len(data), max(size_max, len(data)), seed)
        return buffer.raw[:size]

    return mutate


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> list[Mutate]:
    folder = tmp_path_factory.mktemp("hooks")
    library = compile_mutator(folder / "one.so")
    # The loader opens a file only once.
    return [loaded(library), loaded(Path(shutil.copy(library, folder / "two.so")))]


@pytest.mark.full
def test_mutants_are_the_same_for_the_same_seeds_and_no_longer_than_they_may_be(hooks: list[Mutate]) -> None:
    made, again = ([mutate(TAGGED, 90, seed) for seed in range(300)] for mutate in hooks)
    assert made == again
    assert max(map(len, made)) == 90
    assert len(set(made)) > 200


def test_mutants_are_of_the_same_message_and_now_and_then_of_another_version(hooks: list[Mutate]) -> None:
    choices = [chosen(hooks[0](PLAIN, 4096, seed)) for seed in range(300)]
    assert {choice[0].name for choice in choices if choice} == {"FetchRequest"}
    versions = [choice[1] for choice in choices if choice]
    assert len(versions) == 300
    assert 250 < versions.count(17) < 300


def test_mutants_break_no_promise(hooks: list[Mutate]) -> None:
    for i, data in enumerate(seeds(TARGETS["messages"])):
        RUN(hooks[0](data, 4096, i))


# ------------------------------------------------------------------------------------------------- the walks


@pytest.mark.parametrize(
    ("name", "change", "sentence"),
    [
        ("check", lambda said: (said[0] + 1, said[1]), "check says "),
        ("check", lambda said: (said[0], ()), "check says "),
        ("decode", lambda said: (said[0], (), said[2]), "decode says "),
        ("decode", lambda said: (*said[:2], None), "but decode returns None"),
        ("places", lambda said: (*said[:2], said[2][1:]), "should begin at 0"),
        ("places", lambda said: (*said[:2], [*said[2][:3], *said[2][4:]]), "should begin at "),
        ("places", lambda said: (*said[:2], said[2][:-1]), "the message at "),
        ("decode", lambda said: bytes(100_000) and said, "bytes of memory for a message of "),
    ],
)
def test_walks_that_differ_leave_gaps_or_allocate_are_a_crash(
    monkeypatch: pytest.MonkeyPatch, name: str, change: Callable[[Any], Any], sentence: str
) -> None:
    assert sentence in broken_program(monkeypatch, name, change, DEVIANT)


def test_places_that_end_long_before_a_refusal_are_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    change = broken_program(monkeypatch, "places", lambda said: (*said[:2], said[2][:4]), REFUSED)
    assert "the message is refused with " in change


def test_objects_that_differ_from_dicts_are_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    other = schema(FETCH, 17).decode_objects(TAGGED[SELECTOR_SIZE:])
    said = broken_program(monkeypatch, "decode_objects", lambda _: other, PLAIN)
    assert said.startswith("as objects, FetchRequest has ")


def test_objects_that_are_written_otherwise_than_dicts_are_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = count()
    said = broken_program(monkeypatch, "encode", lambda data: data if next(calls) else b"other", PLAIN)
    assert said.startswith("objects are written as b'other', but dicts as ")


# ------------------------------------------------------------------------------------------------- findings


def test_profiles_that_differ_are_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    real = codec.check

    def check(*arguments: Any, profile: Any) -> Any:
        return replace(real(*arguments, profile=profile), findings=[])

    assert broken(monkeypatch, codec, "check", check, DEVIANT).startswith("profile kafka finds ")


def test_a_strict_profile_that_refuses_as_little_as_kafka_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    real = codec.check
    lax = broken(monkeypatch, codec, "check", lambda *arguments, profile: real(*arguments), DEVIANT)
    assert lax.startswith("profile strict says ")


def test_a_strict_profile_that_refuses_unknown_tags_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "tag-unknown" in broken(monkeypatch, message_findings, "_NEVER_REFUSED", frozenset(), TAGGED)


def test_a_finding_outside_of_the_message_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    real = codec.from_message_note

    def finding(*arguments: Any) -> Any:
        return replace(real(*arguments), at=len(DEVIANT) - SELECTOR_SIZE + 1)

    assert "lies outside the " in broken(monkeypatch, codec, "from_message_note", finding, DEVIANT)


def test_a_decoder_that_takes_what_is_refused_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "decode does not" in broken(monkeypatch, codec, "decode", lambda *arguments: {}, REFUSED)


def test_a_decoder_that_refuses_something_else_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    def decode(*arguments: Any) -> Any:
        raise MessageError(codec.read(*arguments).findings[0])

    assert broken(monkeypatch, codec, "decode", decode, REFUSED).startswith("read refuses ")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda made: replace(made, parts=made.parts[:-1]), "annotate shows "),
        (lambda made: replace(made, findings=[]), "annotate []"),
    ],
)
def test_a_dump_that_leaves_something_out_is_a_crash(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[Any], Any], sentence: str
) -> None:
    real = messages.annotate
    assert sentence in broken(monkeypatch, messages, "annotate", lambda *rest: change(real(*rest)), TAGGED)


def test_an_exception_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*arguments: Any) -> Any:
        raise IndexError("out of range")

    monkeypatch.setattr(codec, "read", read)
    with pytest.raises(IndexError):
        RUN(PLAIN)


# ------------------------------------------------------------------------------------------------- written again


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"rackId": "s"}, "FetchRequest.rackId: 'r' becomes 's'"),
        ({"sessionId": False}, "FetchRequest.sessionId: 0 becomes False"),
        ({"topics": []}, "FetchRequest.topics has 1 elements before, and 0 after"),
        ({"more": 1}, "FetchRequest has "),
    ],
)
def test_values_that_are_others_after_they_were_json_are_a_crash(
    monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], sentence: str
) -> None:
    real = messages.from_json
    changed = broken(monkeypatch, messages, "from_json", lambda *rest: real(*rest) | change, PLAIN)
    assert changed.startswith(f"after JSON, {sentence}")


def test_an_encoder_that_refuses_what_was_read_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    def encode(*arguments: Any) -> bytes:
        raise EncodeError("no room")

    assert broken(monkeypatch, codec, "encode", encode, PLAIN) == "encode refuses values that read returned: no room"


def test_a_size_that_is_not_that_of_the_bytes_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    assert broken(monkeypatch, codec, "size", lambda *arguments: 7, PLAIN).startswith("size says 7, ")


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        (PLAIN, "after writing and reading, FetchRequest has "),
        (TAGGED + b"!", "the written bytes have a finding: "),
        (TAGGED[:-1], "the written bytes have a finding: "),
    ],
)
def test_an_encoder_that_writes_other_values_or_amiss_is_a_crash(
    monkeypatch: pytest.MonkeyPatch, written: bytes, sentence: str
) -> None:
    encoded = written[SELECTOR_SIZE:]
    RUN(TAGGED)
    monkeypatch.setattr(codec, "size", lambda *arguments: len(encoded))
    monkeypatch.setattr(codec, "encode", lambda *arguments: encoded)
    with pytest.raises(OracleFailure, match=sentence):
        RUN(TAGGED)


def test_an_encoder_that_writes_otherwise_the_second_time_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = codec.encode, count()

    def encode(*arguments: Any) -> bytes:
        return real(*arguments) if next(calls) == 0 else b"other"

    assert broken(monkeypatch, codec, "encode", encode, PLAIN).startswith("a second write differs ")


def test_an_encoder_that_changes_canonical_bytes_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    # Bytes that a reader may be given, but no writer makes.
    RUN(SAID_BY_DEFAULT)
    encoded = SAID_BY_DEFAULT[SELECTOR_SIZE:]
    RUN(PLAIN)
    monkeypatch.setattr(codec, "size", lambda *arguments: len(encoded))
    monkeypatch.setattr(codec, "encode", lambda *arguments: encoded)
    with pytest.raises(OracleFailure, match="canonical bytes change: "):
        RUN(PLAIN)


# ------------------------------------------------------------------------------------------------- not to be written

HEADER = catalogue().find("ResponseHeader")
NO_TAG = "ResponseHeader._unknownTaggedFields: tag 2147483647 is not valid; tags go from 0 to 2147483646"
RISING = "give tags in ascending order, each once"
TWICE = f"ResponseHeader._unknownTaggedFields: tag 5 comes after tag 5; {RISING}"
FALLING = f"ResponseHeader._unknownTaggedFields: tag 5 comes after tag 2147483647; {RISING}"


@pytest.mark.parametrize(
    ("tags", "refusals"),
    [
        ("02 0500 0500", [TWICE]),
        ("01 ffffffff07 00", [NO_TAG]),
        ("03 0500 ffffffff07 00 0500", [NO_TAG, FALLING]),
        ("02 0600 0500", [FALLING.replace("2147483647", "6")]),
        ("02 0500 0600", []),
        ("01 feffffff07 00", []),
    ],
)
def test_tags_that_nobody_writes_are_refused_and_no_others(
    monkeypatch: pytest.MonkeyPatch, tags: str, refusals: list[str]
) -> None:
    data = selector(HEADER, 1) + bytes.fromhex("00000007" + tags)
    values = codec.decode(HEADER, 1, data[SELECTOR_SIZE:])
    assert list(cannot_be_written(values, "ResponseHeader")) == refusals
    RUN(data)
    if refusals:
        monkeypatch.setattr(codec, "encode", lambda *arguments: b"")
        with pytest.raises(OracleFailure, match=r"accepts what Kafka cannot write: ResponseHeader\._unknown"):
            RUN(data)


@pytest.mark.parametrize(("size", "refused"), [(10_922, False), (10_923, True)])
def test_a_text_that_grew_beyond_what_a_string_may_have_is_refused(size: int, refused: bool) -> None:
    definition = catalogue().find("SaslHandshakeRequest")
    body = size.to_bytes(2, "big") + b"\xff" * size
    said = list(cannot_be_written(codec.decode(definition, 0, body), definition.name))
    assert said == ["SaslHandshakeRequest.mechanism takes 32769 bytes; a string takes 32767 at most"] * refused
    RUN(selector(definition, 0) + body)


def test_a_number_that_is_none_is_the_same_after_all() -> None:
    values = {"entries": [{"entity": [], "ops": [{"key": "k", "value": float("nan"), "remove": False}]}]}
    definition = catalogue().find("AlterClientQuotasRequest")
    RUN(selector(definition, 1) + codec.encode(definition, 1, values))
