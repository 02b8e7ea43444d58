# The docstrings are in reader.pyx, where ``help`` finds them.
from collections.abc import Generator, Iterator

from typing_extensions import Buffer

from kfuzz.findings import Finding, Profile
from kfuzz.kafka import Role
from kfuzz.records.model import Reading, Record, RecordBatch, Verdict
from kfuzz.records.read.limits import DEFAULT_LIMITS, Limits
from kfuzz.records.read.topic import DEFAULT_TOPIC, Topic
from kfuzz.wire.walk.policy import Choice, Policy

# Byte offset, size in bytes, magic, records, base offset, last offset, base timestamp, max timestamp, attributes,
# producer id, producer epoch, base sequence, leader epoch, whether the reading continues, findings.
HeaderTuple = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int, bool, list[Finding] | None]

def read(
    data: Buffer,
    *,
    profile: Profile = "kafka",
    role: Role = "consumer",
    limits: Limits = DEFAULT_LIMITS,
    topic: Topic = DEFAULT_TOPIC,
) -> Reading: ...
def check(
    data: Buffer,
    *,
    profile: Profile = "kafka",
    role: Role = "consumer",
    limits: Limits = DEFAULT_LIMITS,
    topic: Topic = DEFAULT_TOPIC,
    findings_max: int = ...,
) -> Verdict: ...
def check_with(
    data: Buffer, policy: Policy, *, profile: Profile = "kafka", limits: Limits = DEFAULT_LIMITS
) -> Verdict: ...
def batches(
    data: Buffer,
    *,
    profile: Profile = "kafka",
    role: Role = "consumer",
    limits: Limits = DEFAULT_LIMITS,
    topic: Topic = DEFAULT_TOPIC,
) -> Iterator[RecordBatch]: ...
def headers(
    data: Buffer, *, profile: Profile = "kafka", role: Role = "consumer", limits: Limits = DEFAULT_LIMITS
) -> Iterator[HeaderTuple]: ...
def readings(data: Buffer, *, limits: Limits = DEFAULT_LIMITS) -> Iterator[tuple[Reading, int, int]]: ...
def chosen(data: Buffer, choice: Choice) -> Generator[RecordBatch, None, RecordBatch | None]: ...
def iterate(data: Buffer, *, profile: Profile = "kafka", limits: Limits = DEFAULT_LIMITS) -> Iterator[Record]: ...
def decode(
    data: Buffer,
    *,
    profile: Profile = "kafka",
    role: Role = "consumer",
    limits: Limits = DEFAULT_LIMITS,
    topic: Topic = DEFAULT_TOPIC,
) -> list[RecordBatch]: ...
