"""Values and keys that are written with a schema: from the workload's keys to the program.

The schema's text is part of the workload, so that it travels with it.
"""

from __future__ import annotations

import json
from dataclasses import fields, replace
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Final, TypeVar

from kfuzz.corpora import programs
from kfuzz.corpora.programs import RECURSION_MAX, Endless, Program, TooMany
from kfuzz.corpora.quantities import Range
from kfuzz.corpora.shaping import TEXTS_BYTES_MAX, Schemed, Shaper
from kfuzz.corpora.value_writer import ValueWriter
from kfuzz.errors import UsageError, needs
from kfuzz.forms import Wrong
from kfuzz.kafka import INT32_MAX
from kfuzz.schemas.store import of_file
from kfuzz.schemas.values import REASON_BYTES_MAX, REMEDY, Decode, decoder
from kfuzz.text import foreign_text

# Samples that decide the mean size, at this time.
SAMPLES: Final = 1000
TRIED: Final = 200
SAMPLE_MS: Final = 1_700_000_000_000
# Texts of so many bytes are always enough.
LONG: Final = 20
S = TypeVar("S", bound=Schemed)


def loaded(side: S, folder: Path | None, place: str) -> S:
    """The same with the texts of its files. ``UsageError`` for what concerns several keys."""
    named, framed, given = side.schema is not None, side.framed, side.schema_id
    unused = [one.name for one in fields(Schemed) if getattr(side, one.name) not in (None, ())]
    is_table = bool(side.drawn) and isinstance(side.drawn[0], tuple)
    number = given if isinstance(given, int) else 0
    for wrong, sentence in (
        (named and side.drawn and not is_table, "fields is a list, which is for JSON; make it a table"),
        (not named and is_table, "fields is a table, which needs a schema; name one"),
        (not named and unused, f"{''.join(unused[:1])} needs a schema; name one in schema, or remove it"),
        (
            given is None and framed != "none",
            f"schema_id is missing, which the framing {framed!r} needs; give the schema's id",
        ),
        (given and framed == "none", 'schema_id does not go with the framing "none"; remove one of them'),
        (
            isinstance(given, str) and framed != "confluent-header",
            'schema_id is a GUID, which only "confluent-header" has; give a number',
        ),
        (
            framed not in ("apicurio", "apicurio-header") and number > INT32_MAX,
            f"schema_id is {given}, above {INT32_MAX}, the largest with this framing; give a smaller one",
        ),
        (
            len({*side.references, side.schema}) <= len(side.references),
            "references has a file twice, or the schema's own; name each other file once",
        ),
        (named and side.message and side.schema_kind != "PROTOBUF", "message is for Protobuf only; remove it"),
    ):
        if wrong:
            raise UsageError(f"{place}.{sentence}")
    if side.schema is None:
        return side
    known = dict(side.texts)
    for name in (*side.references, side.schema):
        if name not in known:
            if folder is None:
                raise UsageError(f"{place}.texts lacks {name}; generate the corpus again")
            inner = PurePosixPath(side.schema).parent if name != side.schema else ""
            known[name] = of_file(Path(folder, inner, name)).text
    texts = tuple((name, known[name]) for name in (*side.references, side.schema))
    if sum(len(json.dumps(text)) for _, text in texts) > TEXTS_BYTES_MAX:
        raise UsageError(f"{place}.schema and its references have over {TEXTS_BYTES_MAX >> 10} KiB; name smaller ones")
    return replace(side, texts=texts)


def check(side: Schemed, keys: Range, place: str) -> None:
    """Raise ``UsageError``, with the place and a remedy, if there can be no program."""
    try:
        with needs("it needs fastavro, msgspec, protobuf and grpcio-tools; pip install 'kfuzz[schemas]'"):
            decode = decoder_of(side)
            values = ValueWriter(program(side, keys)).sample(TRIED, SAMPLE_MS)
            # A JSON Schema can ask for anything.
            for value in values if side.schema_kind == "JSON" else ():
                try:
                    decode(value, len(side.prefix))
                except ValueError as error:
                    raise Wrong(f"refuses a value that kfuzz makes ({error})", "say more in fields") from None
    except UsageError as error:
        raise UsageError(f"{place}.schema: {error}") from None
    # A schema can be odd in ways that its library does not check.
    except Exception as error:
        reason = foreign_text(f"{type(error).__name__}: {error}", bytes_max=REASON_BYTES_MAX)
        wrong = error if isinstance(error, Wrong) else Wrong(f"cannot be used ({reason})", "correct the schema")
        wrong.place = wrong.place or ".schema"
        raise UsageError(wrong.sentence(place)) from None


@lru_cache(maxsize=64)
def program(side: Schemed, keys: Range) -> Program:
    """The program that writes values by the schema of ``side``. ``Wrong`` if there can be none.

    ``keys`` is the size of the records' keys; -1 if fields cannot hold them.
    """
    compiler: type[Shaper]
    if side.schema_kind == "AVRO":
        from kfuzz.corpora.avro_program import Compiler as compiler
    elif side.schema_kind == "PROTOBUF":
        from kfuzz.corpora.proto_program import Compiler as compiler
    else:
        from kfuzz.corpora.json_schema_program import Compiler as compiler
    for levels in range(RECURSION_MAX, 0, -1):
        shaper = compiler(dict(side.drawn), keys.max, levels)
        shaper.ahead = side.prefix
        try:
            shaper.compile(side)
            shaper.require_used()
            made = shaper.program()
            break
        except TooMany:
            if levels == 1 or not shaper.is_recursive:
                raise
        except Endless:
            raise Wrong("contains itself without an end", "make it optional or an array there") from None
    samples = ValueWriter(made).sample(SAMPLES, SAMPLE_MS, round(keys.mean))
    return replace(made, bytes_mean=sum(map(len, samples)) / SAMPLES)


def texts(size: Range, letters: int = 16) -> float:
    """How many texts have such a size."""
    sizes = {one for one, _ in size.weights} or range(min(size.min, LONG), min(size.max, LONG) + 1)
    return sum(float(letters) ** min(one, LONG) for one in sizes)


def most_different(made: Program) -> float:
    """At most so many different values a program writes; infinity for many."""
    found = [1.0] * (len(made.steps) + 1)
    for at, step in reversed(list(enumerate(made.steps))):
        if step.kind == programs.BRANCH:
            found[at] = sum(found[to] for *_, to in step.choices)
            continue
        own = float("inf")
        if step.kind in (programs.TEXT, programs.SCOPE):
            own = 1
        elif step.kind in (programs.CHOICE, programs.PICK):
            own = len(step.choices)
        elif step.kind == programs.NUMBER:
            own = step.numbers.max - step.numbers.min + 1
        elif step.kind in (programs.LETTERS, programs.RAW):
            own = texts(step.numbers, 16 if step.kind == programs.LETTERS else 256)
        found[at] = own * found[step.next if step.kind == programs.TEXT else at + 1]
    return found[0]


@lru_cache(maxsize=64)
def decoder_of(side: Schemed) -> Decode:
    """The function that decodes its values by a kept library: it takes a value, the place where it begins and message
    indexes, and raises anything for one that does not fit.
    """
    *references, (name, text) = side.texts
    found = decoder(side.schema_kind, text, dict(references), name, checks=True)
    if isinstance(found, str):
        raise UsageError(found.removesuffix(REMEDY) + REMEDY)
    return found
