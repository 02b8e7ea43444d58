"""Sends the batches of a Kafka log directory to a broker. docs/replay.md is the guide.

``batches`` says what a producer may send, ``sending`` sends one partition of it, and ``running`` all of them. Below
them is ``pace`` (when); :mod:`kfuzz.client` is the client that they use.
"""

from kfuzz.client.address import Address, Security
from kfuzz.replay.batches import Part, find_parts
from kfuzz.replay.choices import ACKS, Acks, Rate, Settings, parse_name, parse_rate, parse_speed
from kfuzz.replay.report import Count, Report, TopicReport
from kfuzz.replay.running import first_timestamp, give, prepare_topics, replay
from kfuzz.units import parse_duration

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
    "give",
    "parse_duration",
    "parse_name",
    "parse_rate",
    "parse_speed",
    "prepare_topics",
    "replay",
]
