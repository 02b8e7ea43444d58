"""The workload: a TOML file that describes a corpus, read into frozen dataclasses. Mistakes raise ``UsageError``.

Each key is declared once, below: its type, its default and its allowed values. ``kfuzz.forms`` makes the validation
and the JSON Schema from these declarations. ``docs/corpora.md`` explains each key.
"""

# ruff: noqa: RUF009 - a Range is frozen, so that it can be a default.

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, cast

from kfuzz.corpora import changes, json_values, schemed
from kfuzz.corpora.changes import Changes
from kfuzz.corpora.json_values import JSON_FIELDS, Field, field_definitions, field_faults
from kfuzz.corpora.own_things import KINDS, Things, check_own
from kfuzz.corpora.programs import Program, Target
from kfuzz.corpora.quantities import LABEL, LATER, MOMENT, Share, Weights, byte_size, integers, numbers, ranged, weights
from kfuzz.corpora.quantities import Range as Range
from kfuzz.corpora.shaping import DRAWN, FIELDS_DRAWN, FieldsDrawn, Schemed
from kfuzz.documents import TOML_BYTES_MAX, load_toml
from kfuzz.errors import UsageError
from kfuzz.files import local_path, read_bytes
from kfuzz.forms import TEXT, Either, Form, ListOf, Wrong, choice, integer, matching, number, table_of
from kfuzz.kafka import CODECS, INDEX_INTERVAL_BYTES, INT32_MAX, TIMESTAMP_TYPES, Codec
from kfuzz.units import GIB as GIB
from kfuzz.units import KIB as KIB
from kfuzz.units import MIB as MIB
from kfuzz.units import show_size

SIZE_MAX = 1 << 60
# The reader decompresses at most 64 MiB by default. A record batch must stay well below that.
BATCH_BYTES_MAX = 32 * MIB
SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX = 64 * KIB, GIB
PRODUCERS_MAX, PARTITIONS_MAX, COUNT_MAX = 10_000, 100_000, 1 << 53
DAY_HOURS = 24
# Shorter bursts would make a long table of the day.
BURST_EVERY_S_MIN = 10
RATIO_MIN, RATIO_MAX = 1.2, 8
FILE_NAME = matching(r"[^\x00-\x1f]{1,4096}", "give the name of a file")
LONG_BASE64 = re.compile("[A-Za-z0-9+/=]{1000,}")
# The payload files of a workload. Executors get them with it.
PAYLOAD_BYTES_MAX = 64 * MIB
# Values with a ratio alternate fresh and repeated bytes in periods of this size.
FRESH_PERIOD_BYTES = 512
# The codecs that kfuzz can write messages of magic 0 and 1 with.
LEGACY_CODECS: tuple[Codec, ...] = ("none", "gzip")
# The bytes of the keys' types, and all forms that a key may have, as in kfuzz.corpora.draws.
KEY_TYPES = {"int": 4, "long": 8, "uuid": 36}
KEY_FORMS = ("letters", "digits", *KEY_TYPES)
HASHING = ("murmur2", "crc32", "consistent-random")
PARTITIONERS = (*HASHING, "round-robin")
# The partitioners that hash need a table of all keys.
OWN_KEYS_MAX, OWN_KEYS_BYTES_MAX = 10_000_000, GIB
VECTORS_GLOB = "[a-zA-Z0-9*?/._-]{1,200}"
# The names that org.apache.kafka.common.internals.Topic accepts.
_NAME = matching(
    "[a-zA-Z0-9._-]{1,249}", "give 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-', not . or .."
)
_NOT_NAMES = (".", "..")
TOPIC_NAME = Form(
    {**_NAME.schema, "not": {"enum": list(_NOT_NAMES)}},
    _NAME.remedy,
    lambda value: _NAME.fits(value) and value not in _NOT_NAMES,
)


@dataclass(frozen=True, slots=True)
class Keys(Schemed):
    """Record keys: ``cardinality`` different keys, of ``size`` bytes each, or as a ``schema`` says.

    ``zipf`` makes some of them hot: the share of the n-th key is proportional to n to the power of -``exponent``.
    ``sequential`` keys are decimal numbers that rise with the offset. With a ``type``, a key is what Kafka's serialiser
    of that type writes, and ``size`` follows from it. A partition draws only keys that ``partitioner`` puts there.
    Topics that name the same ``space`` have the same keys.
    """

    kind: Annotated[str, choice("uniform", "zipf", "sequential")] = "uniform"
    size: Annotated[Range, ranged(0, MIB)] = Range(10, 10)
    cardinality: Annotated[int, integer(1, (1 << 32) - 1)] = 1_000_000
    exponent: Annotated[float, number(0, 4, places=3)] = 1.0
    null_share: Share = 0.0
    type: Annotated[str | None, choice(*KEY_TYPES)] = None
    partitioner: Annotated[str | None, choice(*PARTITIONERS)] = None
    fields: Annotated[FieldsDrawn, FIELDS_DRAWN] = ()
    space: Annotated[str | None, LABEL] = None
    # The fields of keys that are objects, and how their rows change. The topic fills them in.
    row: tuple[tuple[Field, ...], Changes] | None = None

    def __post_init__(self) -> None:
        if self.type is not None:
            size = Range(KEY_TYPES[self.type], KEY_TYPES[self.type])
            if self.size not in (size, Range(10, 10)):
                raise Wrong(f'does not apply to keys of the type "{self.type}"', "remove it", ".size")
            object.__setattr__(self, "size", size)

    @property
    def is_written(self) -> bool:
        """Whether a program writes each key, so that sizes come from it."""
        return self.schema is not None or self.row is not None

    @property
    def form(self) -> str:
        """The form of a key's bytes, or of those inside its object: one of ``KEY_FORMS``."""
        return self.type or ("digits" if self.kind == "sequential" else "letters")

    @property
    def json_size(self) -> Range:
        """The characters of a key in JSON, without the quotes of a text. A number has none, so it takes two less."""
        digits = len(str(self.cardinality - 1)) - 2
        return Range(digits, digits) if self.type in ("int", "long") else self.size

    @property
    def in_fields(self) -> Range:
        """The size of a key as a text in a field of a schema; -1 if that is not possible."""
        return Range(-1, -1) if self.schema or self.type in ("int", "long") else self.size


@dataclass(frozen=True, slots=True)
class Values(Schemed):
    """Record values: ``random`` bytes do not compress, ``text`` does; ``json`` is an object with ``fields``.

    ``file`` has a value in each line; its path counts from the workload's folder. ``content`` is that file in base 64,
    which kfuzz reads itself. ``draw`` chooses lines by the ``weight`` before a tab or in ``turn``, otherwise evenly.

    With a ``schema``, ``fields`` says how those of the schema are drawn.
    With a ``ratio``, random bytes and text repeat themselves just so much that the codec reaches that ratio.
    ``fresh_bytes`` says how much: the number of bytes in each 512 that repeat nothing. kfuzz finds it by measurement.
    Tombstones are null values of records with a key; ``null_share`` counts all records.

    ``cdc`` are changes of rows with ``fields``, as Debezium writes them in JSON; ``changes`` says how rows change.
    """

    size: Annotated[Range, ranged(0, 8 * MIB)] = Range(100, 100)
    kind: Annotated[str, choice("random", "text", "json", "file", "cdc")] = "random"
    fields: Annotated[tuple[Field, ...] | FieldsDrawn, Either(JSON_FIELDS, FIELDS_DRAWN, written=list)] = ()
    ratio: Annotated[float, number(0, RATIO_MAX, places=2)] = 0.0
    fresh_bytes: Annotated[Weights, numbers(CODECS, 0, FRESH_PERIOD_BYTES)] = ()
    tombstone_share: Share = 0.0
    null_share: Share = 0.0
    file: Annotated[str | None, FILE_NAME] = None
    content: Annotated[str | None, TEXT] = None
    draw: Annotated[str | None, choice("weight", "turn")] = None
    changes: Annotated[Changes, table_of(Changes)] = Changes()

    @property
    def is_written(self) -> bool:
        """Whether a program writes each value, so that sizes come from it."""
        return self.schema is not None or self.kind in ("json", "file", "cdc")

    @property
    def is_changes(self) -> bool:
        """Whether each value is a change of a row."""
        return self.kind == "cdc"


def program_of(side: Keys | Values, keys: Keys) -> Program | None:
    """The program that writes these values or keys of records with ``keys``; None if they have only sizes."""
    if side.schema:
        return schemed.program(side, keys.in_fields)
    if not side.is_written:
        return None
    if isinstance(side, Keys):
        return changes.program(*cast("Any", side.row), side.form, "key")
    if side.kind == "json":
        return json_values.program(cast("tuple[Field, ...]", side.fields))
    if side.is_changes:
        return changes.program(cast("tuple[Field, ...]", side.fields), side.changes, keys.form)
    return json_values.payload_program(side.content or "", side.draw)


def sizes_of(side: Keys | Values, keys: Keys) -> tuple[float, int]:
    """The mean size of a value or key that is not null, and an upper bound; ``keys`` are those of the records."""
    made = program_of(side, keys)
    if made is None:
        return side.size.mean, side.size.max
    # Without a key, `null` replaces two quotes.
    key_mean = (1 - keys.null_share) * keys.json_size.mean + keys.null_share * 2
    most = made.bytes_max + made.key_fields * max(2, keys.json_size.max)
    return made.bytes_mean + made.key_fields * key_mean, most


@dataclass(frozen=True, slots=True)
class Headers:
    """Record headers, on ``share`` of the records."""

    share: Share = 0.0
    count: Annotated[Range, ranged(0, 100)] = Range(1, 3)
    size: Annotated[Range, ranged(0, 64 * KIB)] = Range(8, 16)


@dataclass(frozen=True, slots=True)
class Timestamps:
    """Record timestamps: from ``start`` on, or up to ``end``, at a rate that may follow the hours and have bursts.

    ``records_per_second`` is the mean rate of a partition over a day, without its bursts. Each record is moved forward
    by up to ``jitter_ms``; a ``late_share`` of them is moved back by up to ``late_ms``.
    """

    type: Annotated[str, choice(*(one for one in TIMESTAMP_TYPES if one != "none"))] = "create"
    start: Annotated[int | str, MOMENT] = 1_700_000_000_000
    end: Annotated[int | str | None, MOMENT] = None
    records_per_second: Annotated[int, integer(1, 10**9)] = 1000
    hour_weights: Annotated[tuple[int, ...], integers(DAY_HOURS, 1000)] = (1,) * DAY_HOURS
    burst_every_s: Annotated[int, integer(0, DAY_HOURS * 3600)] = 0
    burst_length_s: Annotated[int, integer(1, DAY_HOURS * 3600)] = 60
    burst_factor: Annotated[int, integer(1, 1000)] = 10
    jitter_ms: Annotated[int, integer(0, INT32_MAX)] = 0
    late_share: Share = 0.0
    late_ms: Annotated[int, integer(1, INT32_MAX)] = 60_000

    @property
    def resolved(self) -> bool:
        """Whether nothing here is relative to now."""
        return not isinstance(self.start, str) and not isinstance(self.end, str)


@dataclass(frozen=True, slots=True)
class Batches:
    """The number of records in a record batch, and the codecs that compress it (weights)."""

    records: Annotated[Range, ranged(1, 1_000_000)] = Range(100, 100)
    codecs: Annotated[Weights, weights(*CODECS)] = ((CODECS[0], 1),)


@dataclass(frozen=True, slots=True)
class Producers:
    """Idempotent producers. Together they write ``share`` of the offsets.

    ``epoch_records``: after so many records in a partition, a producer takes the next epoch (0: never).
    ``first_sequence``: the sequence of its first record in a partition.
    """

    count: Annotated[int, integer(1, PRODUCERS_MAX)] = 4
    share: Share = 0.0
    epoch_records: Annotated[int, integer(0, COUNT_MAX)] = 0
    first_sequence: Annotated[int, integer(0, INT32_MAX)] = 0


@dataclass(frozen=True, slots=True)
class Transactions:
    """Transactional producers. Together they write ``share`` of the offsets.

    A transaction covers ``partitions`` partitions of the topic, with ``records`` records in each on average.
    ``cross_share``: for each producer, the share of the segments' boundaries at which a transaction is open.
    ``epoch_transactions``: after so many transactions, a producer takes the next epoch (0: never);
    ``coordinator_epoch_transactions`` does the same for its coordinator.
    """

    producers: Annotated[int, integer(1, PRODUCERS_MAX)] = 4
    share: Share = 0.0
    records: Annotated[int, integer(1, 1_000_000_000)] = 500
    abort_share: Share = 0.1
    partitions: Annotated[int, integer(1, PARTITIONS_MAX)] = 1
    cross_share: Share = 0.0
    epoch_transactions: Annotated[int, integer(0, COUNT_MAX)] = 0
    coordinator_epoch_transactions: Annotated[int, integer(0, COUNT_MAX)] = 0
    first_sequence: Annotated[int, integer(0, INT32_MAX)] = 0


@dataclass(frozen=True, slots=True)
class Legacy:
    """Messages of the old formats, magic 0 and 1: the share of the offsets for each, and their codecs (weights).

    ``magic0_segments``, ``magic1_segments``: so many first segments of each partition have the old format only.
    """

    magic0: Share = 0.0
    magic1: Share = 0.0
    magic0_segments: Annotated[int, integer(0, COUNT_MAX)] = 0
    magic1_segments: Annotated[int, integer(0, COUNT_MAX)] = 0
    codecs: Annotated[Weights, weights(*LEGACY_CODECS)] = ((LEGACY_CODECS[0], 1),)


@dataclass(frozen=True, slots=True)
class Compaction:
    """The first ``segments`` segments of each partition are as the log cleaner leaves them.

    ``keep``: the share of the records that have no later record with their key. It is a matter of chance, not of keys.
    """

    segments: Annotated[int, integer(0, COUNT_MAX)] = 0
    keep: Share = 0.5


@dataclass(frozen=True, slots=True)
class Adversarial:
    """Hostile batches: vectors of the golden suite take ``share`` of the offsets, each at a place that is labelled.

    ``vectors`` is a glob of their ids. ``digest`` says which vectors these were when the corpus was begun; kfuzz finds
    it itself.
    """

    share: Share = 0.0
    vectors: Annotated[str, matching(VECTORS_GLOB, "give a glob of vector ids, such as records/v2/count/*")] = "*"
    digest: Annotated[str, matching("[0-9a-f]{0,64}", "give what kfuzz has found, or leave it out")] = ""


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic of the corpus; ``weight`` sets its part of the corpus' size.

    With another ``kind`` than ``records`` it is one of Kafka's own topics, about so many ``things``.

    ``leader_epoch_offsets``: after so many offsets, a partition takes the next leader epoch (0: never).
    """

    name: Annotated[str, TOPIC_NAME]
    partitions: Annotated[int, integer(1, PARTITIONS_MAX)] = 1
    weight: Annotated[int, integer(1, 1_000_000)] = 1
    leader_epoch_offsets: Annotated[int, integer(0, COUNT_MAX)] = 0
    keys: Annotated[Keys, table_of(Keys)] = Keys()
    values: Annotated[Values, table_of(Values)] = Values()
    headers: Annotated[Headers, table_of(Headers)] = Headers()
    timestamps: Annotated[Timestamps, table_of(Timestamps)] = Timestamps()
    batches: Annotated[Batches, table_of(Batches)] = Batches()
    producers: Annotated[Producers, table_of(Producers)] = Producers()
    transactions: Annotated[Transactions, table_of(Transactions)] = Transactions()
    legacy: Annotated[Legacy, table_of(Legacy)] = Legacy()
    compaction: Annotated[Compaction, table_of(Compaction)] = Compaction()
    adversarial: Annotated[Adversarial, table_of(Adversarial)] = Adversarial()
    kind: Annotated[str, choice("records", *KINDS)] = "records"
    things: Annotated[Things, table_of(Things)] = Things()

    def __post_init__(self) -> None:
        values = self.values
        has_objects = values.is_changes and not values.changes.plain_keys and not self.keys.schema
        row = (changes.key_fields(values.fields), replace(values.changes, added=())) if has_objects else None
        object.__setattr__(self, "keys", replace(self.keys, row=row))

    @property
    def is_own(self) -> bool:
        """Whether it is one of Kafka's own topics, made of numbers of things and not of the workload's size."""
        return self.kind in KINDS

    @property
    def compressing_codecs(self) -> list[str]:
        """The codecs of this topic's batches and messages, without ``none``."""
        used = dict(self.batches.codecs)
        if self.legacy.magic0 or self.legacy.magic1:
            used |= dict(self.legacy.codecs)
        return [codec for codec in CODECS if codec in used and codec != "none"]


@dataclass(frozen=True, slots=True)
class Workload:
    """A whole corpus. ``size`` and ``segment_bytes`` count uncompressed bytes.

    ``segment_bytes`` is 0 if the file does not give it; then the plan decides it when the corpus is begun.
    """

    topics: Annotated[tuple[Topic, ...], ListOf(table_of(Topic), "give at least one [[topics]]", least=1)]
    size: Annotated[int, byte_size(1, SIZE_MAX)] = 256 * MIB
    segment_bytes: Annotated[int, byte_size(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX)] = LATER
    index_interval_bytes: Annotated[int, byte_size(1, GIB)] = INDEX_INTERVAL_BYTES
    seed: Annotated[int, integer(0, (1 << 63) - 1)] = 0

    def resized(self, size: int | None) -> Workload:
        """The same workload with another ``size``; None changes nothing."""
        return self if size is None else replace(self, size=size)

    @property
    def can_grow(self) -> bool:
        """Whether a larger corpus begins with this one. It does not if a topic's timestamps have an ``end``."""
        return all(topic.timestamps.end is None for topic in self.topics)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the canonical text. Equal workloads have equal fingerprints, even if their files differ."""
        return hashlib.sha256(render(self).encode()).hexdigest()


def load(path: str | Path) -> Workload:
    """Read a workload file. Raises ``UsageError`` with the file, the key and the remedy in one sentence."""
    data = read_bytes(path, bytes_max=TOML_BYTES_MAX)
    try:
        # Editors on Windows begin files with a mark.
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text (byte {error.start}); name a workload in TOML") from None
    return parse(text, str(path), local_path(path).parent)


def require_topics(workload: Workload, topics: str) -> None:
    """``UsageError`` if the glob ``topics`` matches no topic of the workload."""
    names = [topic.name for topic in workload.topics]
    if not any(fnmatchcase(name, topics) for name in names):
        raise UsageError(f"no topic of the workload matches {topics!r}; there are {', '.join(names)}")


def parse(text: str, name: str, folder: Path | None = None) -> Workload:
    """Read a workload from TOML ``text``. Raises ``UsageError`` like :func:`load`, with ``name`` as the file's name.

    The files that it names are in ``folder``; None if the text holds their contents.
    """
    # A corpus keeps its workload with every default and all payloads, far larger than the file of a person.
    workload = read(load_toml(text, name, remedy="correct it there", bytes_max=128 * TOML_BYTES_MAX), name)
    topics = [_with_files(topic, f"{name}: topics[{at}]", folder) for at, topic in enumerate(workload.topics)]
    if sum(len(topic.values.content or "") for topic in topics) > PAYLOAD_BYTES_MAX * 4 // 3 + len(topics) * 4:
        raise UsageError(f"{name}: the files of values have more than {show_size(PAYLOAD_BYTES_MAX)}; give less")
    workload = replace(workload, topics=tuple(topics))
    for at, topic in enumerate(workload.topics):
        check_own(topic, f"{name}: topics[{at}]")
        for fault in chain.from_iterable(faults(topic) for faults in _FAULTS):
            raise UsageError(f"{name}: topics[{at}].{fault}")
    for topic_name, count in Counter(topic.name for topic in workload.topics).items():
        if count > 1:
            raise UsageError(f"{name}: topics has the name {topic_name!r} twice; give each topic its own")
    return workload


def read(values: dict[str, Any], name: str) -> Workload:
    """The workload of a file's ``values``, without the rules about several keys at once."""
    form = table_of(Workload)
    try:
        form.check(values)
        made: Workload = form.make(values)
    except Wrong as wrong:
        wrong.place = wrong.place.replace(".", ": ", 1)
        raise UsageError(wrong.sentence(name)) from None
    return made


def _with_content(values: Values, place: str, folder: Path | None) -> Values:
    """``values`` with the bytes of their file in place of its name."""
    if values.file is None:
        return values
    if folder is None:
        raise UsageError(
            f"{place}.file is {values.file!r}, and this text is in no folder; name the file of the workload"
        )
    if values.kind not in ("random", "file") or values.content is not None:
        raise UsageError(f"{place}.file gives the values already; remove kind and content")
    data = read_bytes(folder / values.file, bytes_max=PAYLOAD_BYTES_MAX)
    return replace(values, kind="file", file=None, content=base64.b64encode(data).decode())


def _with_files(topic: Topic, place: str, folder: Path | None) -> Topic:
    """The topic with the contents of its files; its schemas are compiled."""
    keys = schemed.loaded(topic.keys, folder, f"{place}.keys")
    values = schemed.loaded(_with_content(topic.values, f"{place}.values", folder), folder, f"{place}.values")
    for name, side in (("keys", keys), ("values", values)):
        if side.framed.endswith("-header") and topic.legacy != Legacy():
            raise UsageError(f"{place}.{name}.framing needs headers, which old formats lack; remove legacy")
        if side.schema:
            schemed.check(side, keys.in_fields, f"{place}.{name}")
    return replace(topic, keys=keys, values=values)


# ------------------------------------------------------------------------------------- rules about several keys


# Each gives the sentences about what is wrong with a topic; they begin with the key.
def _of_shares(topic: Topic) -> Iterator[str]:
    shares = topic.producers.share + topic.transactions.share + topic.legacy.magic0 + topic.legacy.magic1
    shares += topic.adversarial.share
    # Sums of decimal fractions (0.2 + 0.4 + 0.3 + 0.1) may pass 1 by a rounding error.
    if shares > 1 + 1e-9:
        yield (
            "producers.share, transactions.share, legacy.magic0, legacy.magic1 and adversarial.share add up "
            f"to {shares:.10g}; lower one of them until the sum is at most 1"
        )


def _of_keys(topic: Topic) -> Iterator[str]:
    keys = topic.keys
    if keys.kind != "zipf" and keys.exponent != Keys().exponent:
        yield (f'keys.exponent is {keys.exponent}, but keys.kind is "{keys.kind}"; choose the kind "zipf" or remove it')
    if keys.schema and (keys.size != Keys().size or keys.type):
        yield "keys has a schema, which decides size and type; remove those"
    most = schemed.most_different(schemed.program(keys, keys.in_fields)) if keys.schema else keys.cardinality
    # The default asks for no number. Keys of letters that are learned have more numbers than texts.
    if most < keys.cardinality != Keys().cardinality:
        yield f"keys.cardinality is {keys.cardinality}, above the {most:.0f} that the schema of keys allows; lower it"
    digits = len(str(keys.cardinality - 1))
    if keys.type == "int" and keys.cardinality > INT32_MAX + 1:
        yield (
            f'keys.cardinality is {keys.cardinality}, but there are {INT32_MAX + 1} keys of the type "int"; lower '
            'it, or choose the type "long"'
        )
    if keys.form == "digits" and not keys.schema and keys.size.min < digits:
        yield (
            f"keys.size is at least {keys.size.min} B, but sequential keys up to {keys.cardinality - 1} need "
            f"{digits} digits; raise size or lower cardinality"
        )


def _of_partitioner(topic: Topic) -> Iterator[str]:
    keys = topic.keys
    if keys.partitioner not in HASHING:
        return
    size = int(keys.cardinality * sizes_of(keys, keys)[0])
    if keys.cardinality > OWN_KEYS_MAX or size > OWN_KEYS_BYTES_MAX:
        yield (
            f"keys.partitioner {keys.partitioner} needs a table of all keys, at most {OWN_KEYS_MAX} of together "
            f"{show_size(OWN_KEYS_BYTES_MAX)}, not {keys.cardinality} of {show_size(size)}; lower cardinality or size"
        )
    if keys.partitioner == "crc32" and topic.partitions > 1 and (keys.null_share or not keys.size.min):
        yield (
            "keys.partitioner crc32 puts all null and empty keys into partition 0, so the others would have none; "
            'set null_share to 0 and size.min to 1, or choose "consistent-random"'
        )


def _of_transactions(topic: Topic) -> Iterator[str]:
    of, most = topic.transactions, topic.partitions
    if of.partitions > most:
        yield f"transactions.partitions is {of.partitions}, more than the topic's {most}; lower it"
    # Each of the two parts of a transaction has a record.
    if of.cross_share and of.records < 2:
        yield "transactions.cross_share needs transactions of several records; raise records to 2"


def _of_values(topic: Topic) -> Iterator[str]:
    values = topic.values
    if values.tombstone_share + values.null_share > 1:
        yield (
            f"values.tombstone_share and null_share add up to {values.tombstone_share + values.null_share:.10g}; "
            "lower one of them until the sum is at most 1"
        )
    if values.schema:
        if (values.kind, values.size, values.ratio) != (Values().kind, Values().size, 0):
            yield "values has a schema, which decides kind, size and ratio; remove those"
        return
    if values.is_written and values.size != Values().size:
        yield f"values.size does not apply to {values.kind} values, which have their own sizes; remove it"
    if values.kind != "file" and (values.draw or values.content):
        yield "values.draw is about the lines of a file; name it with file, or remove draw and content"
    if values.kind in ("json", "cdc"):
        if not values.fields:
            yield 'values.fields is empty; list fields, such as { name = "id", type = "counter" }'
        added = (field for one in values.changes.added for field in one.fields)
        yield from field_faults((*cast("tuple[Field, ...]", values.fields), *added), "values.fields")
    if values.is_written:
        try:
            program_of(values, Keys())
        except Wrong as wrong:
            yield wrong.sentence(f"values.{'fields' if values.fields else 'file'}")
    elif values.fields:
        yield f'values.fields needs the kind "json", not "{values.kind}"; set kind or remove fields'


def _of_key_fields(topic: Topic) -> Iterator[str]:
    made = program_of(topic.values, topic.keys)
    if topic.keys.schema and made and made.key_fields:
        yield (
            'values.fields has a field of the type "key", which holds a key as text, but keys with a schema '
            "are bytes; remove that field, or the schema of the keys"
        )


def _of_changes(topic: Topic) -> Iterator[str]:
    values, keys = topic.values, topic.keys
    if not values.is_changes:
        if values.changes != Changes():
            yield f'values.changes needs the kind "cdc", not "{values.kind}"; set kind or remove it'
        return
    # The offset decides which row changes for the how-manieth time.
    for key, is_wrong in (
        ("keys.null_share", keys.null_share),
        ("keys.kind", keys.kind == "zipf"),
        ("values.null_share", values.null_share),
        ("values.tombstone_share", values.tombstone_share),
        ("transactions.share", topic.transactions.share),
        ("adversarial.share", topic.adversarial.share),
        ("compaction.keep", topic.compaction.keep != Compaction().keep),
    ):
        if is_wrong:
            yield f"{key} does not apply to changes of rows, where each offset has one; remove it"
    if keys.row and not keys.row[0]:
        yield (
            'values.fields has no primary key; give it a field of the type "key" without null_share, or set '
            "changes.plain_keys"
        )
    if keys.partitioner not in HASHING and keys.cardinality < topic.partitions:
        yield f"keys.cardinality is {keys.cardinality}, so some of {topic.partitions} partitions have no row; raise it"


def _of_ratio(topic: Topic) -> Iterator[str]:
    values = topic.values
    if values.ratio == 0:
        if values.fresh_bytes:
            yield "values.fresh_bytes needs a ratio; remove it, or give a ratio and let kfuzz find it"
        return
    if values.ratio < RATIO_MIN:
        yield f"values.ratio is {values.ratio:g}; give {RATIO_MIN} to {RATIO_MAX}, or 0 to leave it to the kind"
    if values.is_written:
        yield (f'values.ratio does not apply to {values.kind} values; remove it, or choose the kind "random" or "text"')
    if not topic.compressing_codecs:
        yield "values.ratio needs a codec; choose one in batches.codecs, or remove ratio"
    missing = [codec for codec in topic.compressing_codecs if codec not in dict(values.fresh_bytes)]
    if values.fresh_bytes and missing:
        yield f"values.fresh_bytes has no number for {missing[0]}; remove fresh_bytes, and kfuzz will find it"


def _of_compaction(topic: Topic) -> Iterator[str]:
    legacy = topic.legacy
    has_old = legacy.magic0 or legacy.magic1 or legacy.magic0_segments or legacy.magic1_segments
    for is_there, name, why in (
        (topic.adversarial.share, "adversarial", "stops at a bad batch"),
        (has_old, "legacy", "rewrites messages of old formats"),
    ):
        if topic.compaction.segments and is_there:
            yield (
                f"compaction does not go with {name}, because the log cleaner {why}; leave out one of the two tables"
            )


def _of_timestamps(topic: Topic) -> Iterator[str]:
    times = topic.timestamps
    if times.end is not None and times.start != Timestamps().start:
        yield "timestamps has both start and end; remove one, since the rate gives the other"
    every_s, day_s = times.burst_every_s, DAY_HOURS * 3600
    if every_s and (every_s < BURST_EVERY_S_MIN or day_s % every_s):
        yield (
            f"timestamps.burst_every_s is {every_s}; give 0 for no bursts, or {BURST_EVERY_S_MIN} or more seconds that "
            f"divide a day, such as 600 or 3600"
        )
    if every_s and times.burst_length_s >= every_s:
        yield (f"timestamps.burst_length_s is {times.burst_length_s}, not below burst_every_s ({every_s}); lower it")


_FAULTS = (
    *(_of_shares, _of_keys, _of_partitioner, _of_transactions, _of_values),
    *(_of_key_fields, _of_changes, _of_ratio, _of_compaction, _of_timestamps),
)


def schema() -> dict[str, Any]:
    """The JSON Schema of a workload file.

    It does not contain the rules about several keys at once: a range's ends, the sum of the shares, weights that are
    all 0, duplicate names, a transaction's partitions, compaction of old formats, and sizes and epochs that the plan
    cannot meet.
    """
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A workload of kfuzz",
        **table_of(Workload).schema,
        "$defs": {**field_definitions(), "drawn": DRAWN.schema},
    }


def render(workload: Workload) -> str:
    """The canonical TOML of ``workload``: every key that is not empty, in a fixed order. ``parse`` reads it back."""
    lines = ["# The workload that this corpus was made from, with every default filled in."]
    lines += [
        f"{key} = {value_text(value)}"
        for key, value in _items(workload)
        if key != "topics" and (key != "segment_bytes" or value)
    ]
    for topic in workload.topics:
        lines += ["", "[[topics]]"]
        # A topic of the usual kind is written as before there were others.
        items = [one for one in _items(topic) if topic.is_own or one[0] not in ("kind", "things")]
        lines += [f"{key} = {value_text(value)}" for key, value in items if not _is_table(value)]
        for key, value in items:
            if _is_table(value):
                lines += [f"[topics.{key}]", *(f"{name} = {value_text(inner)}" for name, inner in _items(value))]
    return "\n".join(lines) + "\n"


def _is_table(value: object) -> bool:
    return is_dataclass(value) and not isinstance(value, Range)


def _items(value: Any) -> list[tuple[str, Any]]:
    is_field = isinstance(value, Field)
    found = value.settings if is_field else [(field.name, getattr(value, field.name)) for field in fields(value)]
    if isinstance(value, Values) and not value.is_changes:
        # As before there were any.
        found = [one for one in found if one[0] != "changes"]
    if isinstance(value, Keys):
        # They follow from the topic's values.
        found = [one for one in found if one[0] != "row"]
    return [(name, one) for name, one in found if one != () and one is not None and not isinstance(one, Target)]


def value_text(value: object) -> str:
    """A value as the TOML of a workload has it."""
    if isinstance(value, str) and LONG_BASE64.fullmatch(value):
        # Python reads a literal string at once, and the other kind character by character.
        return f"'{value}'"
    if isinstance(value, Range) and value.weights:
        return json.dumps(value.weights)
    if is_dataclass(value):
        return "{ " + ", ".join(f"{name} = {value_text(inner)}" for name, inner in _items(value)) + " }"
    if isinstance(value, dict):
        value = tuple(value.items())
    if isinstance(value, tuple) and value and isinstance(value[0], tuple):
        return "{ " + ", ".join(f"{_name(name)} = {value_text(inner)}" for name, inner in value) + " }"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + "".join(f"    {value_text(one)},\n" for one in value) + "]"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(value_text, value)) + "]"
    if isinstance(value, str):
        # TOML's escapes are JSON's, except that it wants one for DEL.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value).lower() if isinstance(value, bool) else repr(value)


def _name(key: str) -> str:
    return key if re.fullmatch("[A-Za-z0-9_-]+", key) else json.dumps(key, ensure_ascii=False)
