"""Differentials: kfuzz and a testee get the same generated inputs and must agree on all of them.

``differ``, ``differ_messages``, ``differ_streams``
    compare on mutated records, on every message and version of a catalogue, on random streams of batches
``Differential``
    the result: how many inputs agree, how many a rule excuses, and which ones differ

``kfuzz.conformance.report.differences`` reports the result.
"""

from kfuzz.conformance.differential.found import Differential
from kfuzz.conformance.differential.messages import differ_messages
from kfuzz.conformance.differential.records import differ
from kfuzz.conformance.differential.streams import differ_streams

__all__ = ["Differential", "differ", "differ_messages", "differ_streams"]
