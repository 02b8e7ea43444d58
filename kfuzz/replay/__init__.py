"""Sends batches to a broker: those of a Kafka log directory (docs/replay.md), or of a workload (docs/load.md).

``batches`` says what a producer may send of a log, and ``made`` makes the batches of a workload. ``sending`` sends one
partition of either, and ``running`` all of them. Below them is ``pace`` (when); :mod:`kfuzz.client` is the client that
they use.
"""

from kfuzz.client.address import Address, Security
from kfuzz.replay.batches import Part, find_parts
from kfuzz.replay.choices import ACKS, Acks, Rate, Settings, parse_name, parse_rate, parse_speed
from kfuzz.replay.jobs import load_in_processes, load_shares
from kfuzz.replay.made import ARRIVALS, Arrivals, Load
from kfuzz.replay.report import Count, Report, TopicReport
from kfuzz.replay.running import first_timestamp, give, prepare_topics, replay, run_load
from kfuzz.units import parse_duration

__all__ = [
    "ACKS",
    "ARRIVALS",
    "Acks",
    "Address",
    "Arrivals",
    "Count",
    "Load",
    "Part",
    "Rate",
    "Report",
    "Security",
    "Settings",
    "TopicReport",
    "find_parts",
    "first_timestamp",
    "give",
    "load_in_processes",
    "load_shares",
    "parse_duration",
    "parse_name",
    "parse_rate",
    "parse_speed",
    "prepare_topics",
    "replay",
    "run_load",
]
