"""Sends the batches of a Kafka log directory to a broker. docs/replay.md is the guide.

``source`` says what a producer may send, ``sending`` sends one partition of it, and ``running`` all of them. Below them
is ``pace`` (when); :mod:`kfuzz.client` is the client that they use.
"""

from kfuzz.replay.batches import Part, find_parts
from kfuzz.replay.choices import (
    ACKS,
    Acks,
    Address,
    Rate,
    Security,
    Settings,
    parse_duration,
    parse_name,
    parse_rate,
    parse_speed,
)
from kfuzz.replay.report import Count, Report, TopicReport
from kfuzz.replay.running import first_timestamp, prepare_topics, replay

__all__ = [
    "ACKS",
    "Acks",
    "Address",
    "Count",
    "Part",
    "Rate",
    "Report",
    "Security",
    "Settings",
    "TopicReport",
    "find_parts",
    "first_timestamp",
    "parse_duration",
    "parse_name",
    "parse_rate",
    "parse_speed",
    "prepare_topics",
    "replay",
]
