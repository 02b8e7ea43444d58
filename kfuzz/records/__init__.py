"""Read, check and write record batches of magic 2 and messages of magic 0 and 1.

Other modules build on this one: ``kfuzz.records.conversion`` converts between the formats,
``kfuzz.records.compaction`` does what the log cleaner does, ``kfuzz.records.appending`` does what a broker does with a
Produce request, ``kfuzz.records.stream`` has the rules for sequences and transactions, and ``kfuzz.control`` reads
control records.

>>> from kfuzz import records
>>> data = records.encode([records.RecordBatch(0, 0, [records.Record(0, 1, b"k", b"v")])])
>>> records.decode(data)[0].records[0].value
b'v'
"""

from kfuzz.errors import EncodeError, RecordsError
from kfuzz.findings import PROFILES, Finding, Profile
from kfuzz.findings.records import CODES
from kfuzz.kafka import CODECS, ROLES, Codec, Role, TimestampType
from kfuzz.records.arrow import columns, encode_columns
from kfuzz.records.contents import from_json, to_json
from kfuzz.records.model import Header, Reading, Record, RecordBatch, Verdict
from kfuzz.records.read.limits import Limits
from kfuzz.records.read.reader import batches, check, decode, iterate, read
from kfuzz.records.read.topic import Topic
from kfuzz.records.stream import check_stream, read_committed
from kfuzz.records.writer import encode, encode_batch

__all__ = [
    "CODECS",
    "CODES",
    "PROFILES",
    "ROLES",
    "Codec",
    "EncodeError",
    "Finding",
    "Header",
    "Limits",
    "Profile",
    "Reading",
    "Record",
    "RecordBatch",
    "RecordsError",
    "Role",
    "TimestampType",
    "Topic",
    "Verdict",
    "batches",
    "check",
    "check_stream",
    "columns",
    "decode",
    "encode",
    "encode_batch",
    "encode_columns",
    "from_json",
    "iterate",
    "read",
    "read_committed",
    "to_json",
]
