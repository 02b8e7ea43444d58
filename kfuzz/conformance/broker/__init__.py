"""Asks a real Apache Kafka broker about vectors (docs/real-broker.md)."""

from __future__ import annotations

from kfuzz.conformance.broker.real import (
    Broker,
    BrokerFailed,
    Marker,
    Produced,
    RealBroker,
    Recovered,
    artefacts,
    is_for_broker,
    judge,
    play,
    produce,
    recover,
)
from kfuzz.conformance.broker.talking import talk

__all__ = [
    "Broker",
    "BrokerFailed",
    "Marker",
    "Produced",
    "RealBroker",
    "Recovered",
    "artefacts",
    "is_for_broker",
    "judge",
    "play",
    "produce",
    "recover",
    "talk",
]
