"""Changes of a database's rows, as Debezium's connectors write them in JSON.

Each key is a row. The offsets of a partition are divided into rounds, and each round changes each of its rows once, in
another order. So row and round follow from the offset, and segments stay independent. Round 0 is the snapshot. A row is
then updated some times, deleted, followed by a tombstone a round later, and created again; rows are at different places
of this cycle. A row's fields depend only on the row and the round, so what was before a change is known too.

``kfuzz.corpora.relations`` says which rows a partition has, and ``rounds.pxd`` has the order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, Final

from kfuzz.corpora import programs
from kfuzz.corpora.json_values import JSON_FIELDS, Field, FieldsWriter
from kfuzz.corpora.programs import Program, quoted
from kfuzz.corpora.quantities import LABEL, Range
from kfuzz.forms import BOOLEAN, ListOf, Wrong, integer, table_of

# Debezium's keys and envelopes; texts with @ stand for what differs.
SIDES: Final[dict[str, Any]] = json.loads(Path(__file__).with_name("debezium.json").read_text())
# The types of fields in Connect's schema; the others are texts.
CONNECT: Final = {"counter": "int64", "integer": "int64", "decimal": "double", "boolean": "boolean"}
# Above the number of rows, because numbers begin with 0 after the snapshot.
FIRST_LSN, FIRST_TRANSACTION = 1 << 40, 1 << 33
# The kinds of changes that have a row before and after: bits in the order of ``OPERATIONS``.
OPERATIONS: Final = "rcud"
BEFORE, AFTER = 0b1100, 0b0111


@dataclass(frozen=True, slots=True)
class Added:
    """Fields that rows have from a round on."""

    round: Annotated[int, integer(1, 1 << 40)]
    fields: Annotated[tuple[Field, ...], JSON_FIELDS] = ()


@dataclass(frozen=True, slots=True)
class Changes:
    """How the rows of a table change. Between its creation and its deletion, a row is updated ``updates`` times.

    ``schema_part``: keys and values have Connect schemas. ``plain_keys``: keys are as in a topic of another kind, not
    objects with the row's fields of the type ``key``. ``transaction_records``: so many records of a partition follow
    each other in one transaction of the database (0: without transaction metadata). ``added`` are changes of the table.
    """

    updates: Annotated[int, integer(0, 10_000)] = 8
    schema_part: Annotated[bool, BOOLEAN] = False
    transaction_records: Annotated[int, integer(0, 1 << 20)] = 0
    table: Annotated[str, LABEL] = "rows"
    plain_keys: Annotated[bool, BOOLEAN] = False
    added: Annotated[tuple[Added, ...], ListOf(table_of(Added), "make it a list of tables", written=list)] = ()

    @property
    def tombstone_share(self) -> float:
        """The share of tombstones after the snapshot."""
        return 1 / (self.updates + 3)


class _Envelope(FieldsWriter):
    """Writes the parts of ``SIDES`` that begin with @."""

    def __init__(self, fields: tuple[Field, ...], changes: Changes, key_type: str) -> None:
        super().__init__()
        self._fields, self._changes, self._key_type = fields, changes, key_type
        self._inside: tuple[int, int, int, float] | None = None

    def write(self, name: str, more: str) -> None:
        """Write the part with this name; ``more`` is what follows in its text."""
        each = self._changes.transaction_records
        if name in ("before", "after"):
            self._row(BEFORE if name == "before" else AFTER, -1 if name == "before" else 0)
        elif name == "key":
            self.object(self._fields)
        elif name == "columns":
            self._with_added(b"[", self._columns, b"]")
        elif name == "table":
            self.ahead += quoted(self._changes.table)
        elif name == "name":
            self.ahead += quoted(f"kfuzz.public.{self._changes.table}{more}")
        elif name == "ms":
            self.add(programs.MOMENT, 16, mean=13)
        elif name in ("op", "snapshot"):
            texts = OPERATIONS if name == "op" else ("true", "false", "false", "false")
            choices = [(quoted(one), 1) for one in texts]
            self.choose(choices, kind=programs.TURN, form=programs.BY_CHANGE)
        elif name in ("number", "lsn"):
            self._count(FIRST_LSN if name == "lsn" else FIRST_TRANSACTION, each if name == "number" else 1)
        elif not each:
            self.ahead += b"null"
        else:
            self.since(1, self._transaction, b"null")

    def field(self, field: Field) -> None:
        """Add the value of a field. ``Wrong`` for a field that a change before could not have had."""
        if field.type == "timestamp" or (field.reference and field.reference.lag_ms is not None):
            problem = f"has the field {field.name!r}, which depends on the time, and rows on their changes only"
            raise Wrong(problem, "remove it or its lag_ms")
        super().field(field)

    def _count(self, first: int, divide: int = 1, modulo: int = 0) -> None:
        numbers = Range(first, first)
        self.add(programs.COUNTER, 16, mean=10, numbers=numbers, divide=max(1, divide), modulo=modulo)

    def _transaction(self) -> None:
        each = self._changes.transaction_records
        self.ahead += b'{"id":"'
        self.add(programs.ITEM, 6, mean=1)
        self.ahead += b":"
        self._count(FIRST_TRANSACTION, each)
        for name in (b'","total_order":', b',"data_collection_order":'):
            self.ahead += name
            self._count(1, modulo=each)
        self.ahead += b"}"

    def _with_added(self, before: bytes, write: Callable[[tuple[Field, ...], bool], None], after: bytes) -> None:
        self.ahead += before
        write(self._fields, False)
        for added in self._changes.added:
            self.since(added.round, partial(write, added.fields, True))
        self.ahead += after

    def _columns(self, fields: tuple[Field, ...], is_more: bool) -> None:
        text = json.dumps([self._column(one, is_more) for one in fields], ensure_ascii=False, separators=(",", ":"))
        self.ahead += b"," * is_more + text[1:-1].encode()

    def _column(self, field: Field, is_added: bool) -> dict[str, Any]:
        """The Connect schema of a field."""
        column = {"type": CONNECT.get(str(field.type), "string"), "optional": is_added, "field": field.name}
        if field.type == "object":
            return {**column, "type": "struct", "fields": [self._column(one, False) for one in field.fields]}
        if field.type == "key" and self._key_type in ("int", "long"):
            column["type"] = "int32" if self._key_type == "int" else "int64"
        if field.reference and field.reference.target and field.reference.target.is_number:
            column["type"] = "int64"
        return {**column, "optional": is_added or bool(field.null_share)}

    def _row(self, kinds: int, round_: int) -> None:
        at = self.add(programs.ROW, 4, mask=kinds, numbers=Range(round_, round_))
        if self._inside is None:
            begin, most, mean = len(self.steps), self.most, self.mean
            self._with_added(b"{", self.members, b"}")
            self.flush(always=True)
            self._inside = begin, len(self.steps), self.most - most, self.mean - mean
        else:
            self.grow(self._inside[2])
            self.mean += self._inside[3]
            self.key_fields *= 2
        begin, end, *_ = self._inside
        self.steps[at] = replace(self.steps[at], cut_at=begin, size=end, next=len(self.steps))


def key_fields(fields: tuple[Any, ...]) -> tuple[Field, ...]:
    """The fields of a row that are the table's primary key, which is never null."""
    return tuple(one for one in fields if one.type == "key" and not one.null_share)


@lru_cache(maxsize=64)
def program(fields: tuple[Field, ...], changes: Changes, key_type: str, side: str = "value") -> Program:
    """The program that writes a change of a row with ``fields``, or a key (``side``) with them.

    ``key_type`` is one of ``KEY_FORMS``.
    """
    made = _Envelope(fields, changes, key_type)
    text = json.dumps(SIDES[side] if changes.schema_part else SIDES[side]["payload"], separators=(",", ":"))
    fixed, *parts = re.split(r'"@([a-z]+)([.A-Za-z]*)"', text)
    made.ahead += fixed.encode()
    for name, more, after in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        made.write(name, more)
        made.ahead += after.encode()
    return made.program()
