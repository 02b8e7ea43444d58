# The docstrings are in reader.pyx, where ``help`` finds them.
from collections.abc import Generator, Iterator
from typing import NamedTuple

from typing_extensions import Buffer

from kfuzz.findings import Finding, Profile
from kfuzz.kafka import Role
from kfuzz.records.model import Reading, Record, RecordBatch, Verdict
from kfuzz.records.read.limits import DEFAULT_LIMITS, Limits
from kfuzz.records.read.topic import DEFAULT_TOPIC, Topic
from kfuzz.wire.walk.policy import Choice, Policy

class BatchHeader(NamedTuple):
    """A batch's header, with its number and place, whether the reading continues after it, and its findings."""

    number: int
    at: int
    size: int
    magic: int
    record_count: int
    base_offset: int
    last_offset: int
    base_timestamp: int
    max_timestamp: int
    attributes: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    leader_epoch: int
    is_readable: bool
    findings: list[Finding] | None

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
    data: Buffer,
    *,
    profile: Profile = "kafka",
    role: Role = "consumer",
    limits: Limits = DEFAULT_LIMITS,
    also: Policy | None = None,
) -> Iterator[BatchHeader]: ...
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
