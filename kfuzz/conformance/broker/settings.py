"""A broker as a peer: its handshake, and the settings that a vector's ``topic`` asks for, by Kafka's names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeVar

from kfuzz.conformance.protocol.lines import DECODE, Handshake
from kfuzz.conformance.protocol.peer import Question
from kfuzz.kafka import CODECS
from kfuzz.vectors.kinds import TOPIC

T = TypeVar("T")
MAX_MESSAGE_BYTES: Final = "max.message.bytes"
# A broker's clock cannot be set.
OF_TOPICS: Final = {
    "compacted": "cleanup.policy",
    "compression": "compression.type",
    "max_message_bytes": MAX_MESSAGE_BYTES,
    "timestamp_before_max_ms": "message.timestamp.before.max.ms",
    "timestamp_type": "message.timestamp.type",
}
OF_BROKERS: Final = {"max_request_bytes": "socket.request.max.bytes"}
# Kafka's words for values.
_WORDS: Final = {
    "True": "compact",
    "False": "delete",
    "none": "uncompressed",
    "create": "CreateTime",
    "log-append": "LogAppendTime",
}


def handshake_of(name: str) -> Handshake:
    """The broker as a testee. ``name`` is ``NAME@VERSION``, or just a name, which no file belongs to."""
    who, _, version = name.partition("@")
    return Handshake(
        name=who,
        version=version,
        language="",
        operations=frozenset({DECODE}),
        roles=frozenset({"broker"}),
        magic=frozenset({0, 1, 2}),
        codecs=frozenset(CODECS),
    )


def by_settings(
    questions: Iterable[Question[T]], names: Mapping[str, str]
) -> Iterator[tuple[dict[str, str], list[Question[T]]]]:
    """The questions grouped by the values of these settings, each group with its configuration. Those that need none
    are first.
    """
    wanted: dict[tuple[tuple[str, str], ...], list[Question[T]]] = {(): []}
    for question in questions:
        topic = question.request.get(TOPIC, {})
        config = {names[name]: _WORDS.get(str(value), str(value)) for name, value in topic.items() if name in names}
        wanted.setdefault(tuple(sorted(config.items())), []).append(question)
    return ((dict(config), asked) for config, asked in wanted.items() if asked)
