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
from faults import Fault, as_if, having, raising, require_seen

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


def program_with(name: str, change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The compiled program of FetchRequest, with a change of what its method ``name`` returns."""

    def changed(real: Callable[..., Any]) -> Callable[..., Any]:
        program = real(FETCH, 17)
        parts = {
            one: getattr(program, one) for one in ("name", "check", "decode", "decode_objects", "encode", "places")
        }
        fake = SimpleNamespace(**parts | {name: as_if(change)(parts[name])})
        return lambda definition, version: fake

    return changed


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


# ------------------------------------------------------------------------------------------------- broken promises


def refuses_the_first(*arguments: Any) -> Any:
    raise MessageError(codec.read(*arguments).findings[0])


def first_then(other: bytes) -> Callable[[Any], Any]:
    """A writer that writes something else after the first time."""
    calls = count()
    return lambda real: lambda *arguments: real(*arguments) if next(calls) == 0 else other


# The bytes that the writer makes of objects, which are written before dicts.
ONCE = iter([b"other"])
OTHER_OBJECTS = schema(FETCH, 17).decode_objects(TAGGED[SELECTOR_SIZE:])
FAULTS: dict[str, list[Fault]] = {
    "walks that differ, leave gaps or allocate": [
        (messages, "schema", program_with(name, change), DEVIANT, sentence)
        for name, change, sentence in (
            ("check", lambda said: (said[0] + 1, said[1]), "check says "),
            ("check", lambda said: (said[0], ()), "check says "),
            ("decode", lambda said: (said[0], (), said[2]), "decode says "),
            ("decode", lambda said: (*said[:2], None), ".*but decode returns None"),
            ("places", lambda said: (*said[:2], said[2][1:]), ".*should begin at 0"),
            ("places", lambda said: (*said[:2], [*said[2][:3], *said[2][4:]]), ".*should begin at "),
            ("places", lambda said: (*said[:2], said[2][:-1]), ".*the message at "),
            ("decode", lambda said: bytes(100_000) and said, ".*bytes of memory for a message of "),
        )
    ],
    "places that end long before a refusal": [
        (messages, "schema", program_with("places", lambda said: (*said[:2], said[2][:4])), REFUSED,
         ".*the message is refused with "),
    ],
    "objects that differ from dicts, or are written otherwise": [
        (messages, "schema", program_with("decode_objects", lambda _: OTHER_OBJECTS), PLAIN,
         "as objects, FetchRequest has "),
        (messages, "schema", program_with("encode", lambda data: next(ONCE, data)), PLAIN,
         "objects are written as b'other', but dicts as "),
    ],
    "profiles": [
        (codec, "check", having(findings=[]), DEVIANT, "profile kafka finds "),
        (codec, "check", lambda real: lambda *arguments, profile: real(*arguments), DEVIANT, "profile strict says "),
        (message_findings, "_NEVER_REFUSED", lambda real: frozenset(), TAGGED, ".*tag-unknown"),
    ],
    "findings": [
        (codec, "from_message_note", having(at=len(DEVIANT) - SELECTOR_SIZE + 1), DEVIANT, ".*lies outside the "),
        (codec, "decode", lambda real: lambda *arguments: {}, REFUSED, ".*decode does not"),
        (codec, "decode", lambda real: refuses_the_first, REFUSED, "read refuses "),
    ],
    "a dump that leaves something out": [
        (messages, "annotate", as_if(lambda made: replace(made, parts=made.parts[:-1])), TAGGED, "annotate shows "),
        (messages, "annotate", having(findings=[]), TAGGED, r".*annotate \[\]"),
    ],
    "values that are others after they were JSON": [
        (messages, "from_json", as_if(lambda values, change=change: values | change), PLAIN, f"after JSON, {sentence}")
        for change, sentence in (
            ({"rackId": "s"}, "FetchRequest.rackId: 'r' becomes 's'"),
            ({"sessionId": False}, "FetchRequest.sessionId: 0 becomes False"),
            ({"topics": []}, "FetchRequest.topics has 1 elements before, and 0 after"),
            ({"more": 1}, "FetchRequest has "),
        )
    ],
    "an encoder": [
        (codec, "encode", lambda real: raising(EncodeError("no room")), PLAIN,
         "encode refuses values that read returned: no room$"),
        (codec, "size", lambda real: lambda *arguments: 7, PLAIN, "size says 7, "),
        (codec, "encode", first_then(b"other"), PLAIN, "a second write differs "),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    "fault",
    [pytest.param(fault, id=f"{what} {i}") for what, faults in FAULTS.items() for i, fault in enumerate(faults)],
)
def test_a_broken_promise_is_a_crash(monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
    require_seen(monkeypatch, RUN, fault)


def test_an_exception_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "read", raising(IndexError("out of range")))
    with pytest.raises(IndexError):
        RUN(PLAIN)


@pytest.mark.parametrize(
    ("data", "written", "sentence"),
    [
        (TAGGED, PLAIN, "after writing and reading, FetchRequest has "),
        (TAGGED, TAGGED + b"!", "the written bytes have a finding: "),
        (TAGGED, TAGGED[:-1], "the written bytes have a finding: "),
        # Bytes that a reader may be given, but no writer makes.
        (PLAIN, SAID_BY_DEFAULT, "canonical bytes change: "),
    ],
)
def test_an_encoder_that_writes_other_values_or_amiss_is_a_crash(
    monkeypatch: pytest.MonkeyPatch, data: bytes, written: bytes, sentence: str
) -> None:
    encoded = written[SELECTOR_SIZE:]
    monkeypatch.setattr(codec, "size", lambda *arguments: len(codec.encode(*arguments)))
    require_seen(monkeypatch, RUN, (codec, "encode", lambda real: lambda *arguments: encoded, data, sentence))


def test_a_tagged_field_with_its_default_is_no_fault() -> None:
    RUN(SAID_BY_DEFAULT)


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
