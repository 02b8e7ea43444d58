"""A theme: the recipes of one vector file.

``valid``, ``invalid`` and ``acceptable`` each add a vector, named after the consumer's verdict. ``broker=`` and
``log=`` set the verdicts of those roles where they matter. ``stream`` adds a sequence of steps, ``message`` a message,
``primitive`` one value of one type, ``produce`` records for a producer. If a consumer may read the bytes but the rules
of Produce requests forbid them, the broker's refusal is added automatically.

``flag`` and ``having`` return the same theme with options for the vectors that are added through it.

A theme does not hold Apache Kafka's answers: ``kfuzz vectors build --confirm`` fills those cells.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, wraps
from pathlib import Path
from typing import Any, Self

from kfuzz.vectors.model import CONTENT_RECORDS_MAX, contents_digest
from kfuzz.vectors.recipes.making.builder import Raw, concat
from kfuzz.vectors.recipes.making.conversation import GIVEN, Act
from kfuzz.vectors.recipes.making.message import Body
from kfuzz.vectors.recipes.making.primitive import NOTHING, Single
from kfuzz.vectors.recipes.making.produced import refusal

Json = dict[str, Any]

# The budget of hostile vectors of a few hundred bytes: enough for any reader to refuse them.
SMALL = {"cpu_ms": 2000, "memory_bytes": 16 * 1024 * 1024}
# Findings that only a reader of the records can report.
INSIDE_PAYLOAD = frozenset({"batch-length-too-large", "decompression-failed"})


@dataclass(frozen=True, slots=True)
class Expectation:
    """One role's expectation. ``batches`` is the contents that it reads; the default is what the recipe encodes."""

    verdict: str
    finding: str | None = None
    batches: Sequence[Json] | None = None

    def to_json(self, raw: Raw) -> Json:
        """The expectation as vector JSON."""
        expectation: Json = {"verdict": self.verdict}
        if self.finding is not None:
            expectation["finding"] = self.finding
        if self.verdict != "invalid":
            expectation["batches"] = list(raw.batches if self.batches is None else self.batches)
            expectation["consumed"] = len(raw.data)
        return expectation


def accepts(*, finding: str | None = None, batches: Sequence[Json] | None = None) -> Expectation:
    """The role accepts. With a ``finding``, others may refuse for that reason, so the verdict is ``acceptable``."""
    return Expectation("valid" if finding is None else "acceptable", finding, batches)


def refuses(finding: str) -> Expectation:
    """The role refuses; ``finding`` names the reason."""
    return Expectation("invalid", finding)


def _entries(raw: Raw) -> int:
    """How many records and headers the contents list."""
    return sum(1 + len(record["headers"]) for read in raw.batches for record in read["records"])


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a stream: its bytes, and each role's expectation after the earlier steps, in the schema's form."""

    raw: Raw
    expect: Mapping[str, Json]

    def to_json(self) -> Json:
        """The step as vector JSON."""
        return {"hex": self.raw.data.hex(), "expect": dict(self.expect)}


@dataclass(frozen=True, slots=True)
class Recipe:
    """The recipe of one vector. ``document`` is the vector's JSON without its bytes and without Kafka's cells."""

    document: Json
    data: bytes
    by_content: bool
    bomb: str | None = None

    @property
    def id(self) -> str:
        return str(self.document["id"])

    def to_json(self, data: bytes, kafka: Json) -> Json:
        """The vector as file JSON. ``data`` is the recipe's own bytes, or committed bytes with the same contents."""
        if "steps" in self.document or "application" in self.document:
            content: Json = {}
        elif self.bomb is None:
            content = {"hex": data.hex()}
        else:
            content = {"recipe": self.bomb, "sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
        return {**self.document, **content, "kafka": kafka}


@cache
def _known_flags() -> Json:
    return tomllib.loads(Path(__file__).with_name("flags.toml").read_text(encoding="utf-8"))


def adding(add: Callable[..., None]) -> Callable[..., None]:
    """A method that adds a vector, with the theme's options instead of those that its caller does not give."""

    @wraps(add)
    def added(theme: Theme, *parts: Any, **options: Any) -> None:
        add(theme, *parts, **{**theme.options, **options})

    return added


@dataclass(slots=True)
class Theme:
    """One file of the suite, ``vectors/<path>.json``; the ids of its vectors begin with the path.

    ``options`` are those of all vectors that are added, unless a vector has its own.
    """

    path: str
    about: str
    kind: str = "records"
    recipes: list[Recipe] = field(default_factory=list)
    options: Json = field(default_factory=dict)

    @property
    def flags(self) -> Json:
        """All flags by name, in the words that this file has for them."""
        flags = _known_flags()
        return {**flags, **flags.get(self.path, {})}

    def having(self, **options: Any) -> Self:
        """The same theme, for vectors with these options."""
        return replace(self, options={**self.options, **options})

    def flag(self, name: str, **options: Any) -> Self:
        """The same theme, for vectors with this flag of ``flags.toml`` and with these options."""
        return self.having(flags=[name], **options)

    def valid(self, slug: str, summary: str, *raws: Raw | bytes, **options: Any) -> None:
        """The documents and Apache Kafka both accept it."""
        self._records("valid", slug, summary, *raws, **options)

    def invalid(self, slug: str, summary: str, *raws: Raw | bytes, **options: Any) -> None:
        """The documents and Apache Kafka both refuse it; ``finding`` names the reason."""
        self._records("invalid", slug, summary, *raws, **options)

    def acceptable(self, slug: str, summary: str, *raws: Raw | bytes, **options: Any) -> None:
        """The documents and Kafka differ, or the documents are silent or say *should* or *may*.

        ``finding`` is the reason for a refusal; without it, the bytes comply with every document.
        """
        self._records("acceptable", slug, summary, *raws, **options)

    @adding
    def _records(
        self,
        verdict: str,
        slug: str,
        summary: str,
        *raws: Any,
        finding: str | None = None,
        tail: bytes = b"",
        read: Sequence[Json] | None = None,
        alternatives: Sequence[Sequence[Json]] = (),
        bomb: str | None = None,
        broker: Expectation | None = None,
        log: Expectation | None = None,
        harmless: bool = False,
        **options: Any,
    ) -> None:
        raw = raws[0] if len(raws) == 1 else concat(*raws)
        # A recipe sets the fields that matter. Without ``harmless``, all of them are hostile if it marks none.
        if verdict != "valid" and not harmless and not any(place.hostile for place in raw.layout):
            raw = replace(raw, layout=tuple(replace(place, hostile=True) for place in raw.layout))
        consumer = Expectation(verdict, finding, read).to_json(raw)
        consumer |= {"partial_tail": True} if tail else {}
        consumer |= {"alternatives": [list(batches) for batches in alternatives]} if alternatives else {}
        if broker is None and verdict != "invalid" and (reason := refusal(raw)):
            broker = refuses(reason)
            # A log may hold batches that no producer may send, and it does not open payloads.
            log = log or (None if finding in INSIDE_PAYLOAD else Expectation(verdict, finding))
        others = {role: judged.to_json(raw) for role, judged in (("broker", broker), ("log", log)) if judged}
        expect = {"consumer": consumer} | others
        if bomb is not None and _entries(raw) > CONTENT_RECORDS_MAX:
            for stated in expect.values():
                stated |= {"batches": contents_digest(stated["batches"])} if "batches" in stated else {}
        self._add(
            slug,
            summary,
            raw.data + tail,
            canonical=verdict == "valid" and raw.canonical and not tail,
            layout=_layout(raw),
            expect=expect,
            by_content=raw.by_content,
            bomb=bomb,
            **options,
        )

    def _add(
        self,
        slug: str,
        summary: str,
        data: bytes,
        *,
        requirements: Sequence[str],
        also: Sequence[str] = (),
        flags: Sequence[str] = (),
        level: str = "required",
        canonical: bool = False,
        layout: Sequence[Json] = (),
        by_content: bool = False,
        bomb: str | None = None,
        **members: Any,
    ) -> None:
        """Add a vector that cites ``requirements``, and ``also`` those.

        Of the ``members`` that its kind has besides, those that are None are left out.
        """
        document = {
            "id": f"{self.path}/{slug}",
            "summary": summary,
            "level": level,
            "requirements": [*requirements, *also],
            "flags": list(flags),
            "canonical": canonical,
            "layout": list(layout),
            **{name: value for name, value in members.items() if value is not None},
        }
        self.recipes.append(Recipe(document, data, by_content, bomb))

    @adding
    def stream(
        self,
        slug: str,
        summary: str,
        *steps: Step,
        aborted: Sequence[tuple[int, int]] | None = None,
        fetch_offset: int | None = None,
        **options: Any,
    ) -> None:
        """A vector of kind ``stream``; ``aborted`` lists (producer id, first offset) as in a fetch response.

        Other options are ``isolation``, ``transaction_version``, ``broker`` and ``fetches_at_end``; the last two are
        those of the testee protocol.
        """
        whole = concat(*(step.raw for step in steps))
        self._add(
            slug,
            summary,
            whole.data,
            layout=_layout(whole),
            steps=[step.to_json() for step in steps],
            aborted=None
            if aborted is None
            else [{"producer_id": str(producer), "first_offset": str(at)} for producer, at in aborted],
            fetch_offset=None if fetch_offset is None else str(fetch_offset),
            **options,
        )

    @adding
    def produce(
        self,
        slug: str,
        summary: str,
        raw: Raw,
        *,
        compression: str = "none",
        idempotent: bool = False,
        bomb: str | None = None,
        **options: Any,
    ) -> None:
        """A vector of kind ``produce``: a producer with these options must send the records of ``raw``.

        ``bomb``: the name of the recipe of ``raw``, if the records are too large for a file. Other options are
        ``transactional_id`` and

        * ``errors``: the errors in the broker's first answers,
        * ``sends``: how many records each send has, where there are several,
        * ``at_once``: no send waits for the one before,
        * ``topic_errors``: for each send, the error of its topic in Metadata,
        * ``group``: each send is a transaction, which also commits an offset of this group,
        * ``left_out``: the fields of records that the producer's user leaves out,
        * ``broker``: that of the testee protocol,
        * ``may_refuse``: the producer may also refuse the records.
        """
        batches = contents_digest(raw.batches) if bomb else list(raw.batches)
        self._add(
            slug,
            summary,
            raw.data,
            canonical=raw.canonical,
            compression=compression,
            idempotent=idempotent,
            expect={"broker": {"verdict": "valid", "batches": batches, "consumed": len(raw.data)}},
            by_content=raw.by_content,
            bomb=bomb,
            **options,
        )

    @adding
    def conversation(
        self,
        slug: str,
        summary: str,
        *rules: Json,
        acts: Sequence[Act],
        follows: Sequence[Json | str] = (),
        written: Sequence[str] | None = None,
        repeats: bool = False,
        brokers: int = 1,
        **options: Any,
    ) -> None:
        """A vector of kind ``conversation``: what the application does, and what it must get of each act.

        ``rules``: those of the proxy between client and brokers. ``follows``: the requests after the first trouble; a
        name stands for any request of that API.
        ``written``: the values that the log has at the end; with ``repeats``, some may be there more than once.
        If the acts only read, the topic has the batches ``GIVEN``. Another option is ``broker``, that of the testee
        protocol.
        """
        does = {done["do"] for done, _ in acts}
        asked = [{"api": one} if isinstance(one, str) else one for one in follows]
        expectation: Json = {"verdict": "valid", "acts": [gives for _, gives in acts]}
        expectation |= {"follows": asked} if asked else {}
        expectation |= {"written": list(written)} if written is not None else {}
        expectation |= {"repeats": True} if repeats else {}
        self._add(
            slug,
            summary,
            b"",
            application=[done for done, _ in acts],
            expect={"client": expectation},
            rules=list(rules) or None,
            given=GIVEN if "open" in does and "produce" not in does else None,
            brokers=brokers if brokers > 1 else None,
            **options,
        )

    @adding
    def message(
        self, slug: str, summary: str, body: Body, *, annotate: bool = True, bomb: str | None = None, **options: Any
    ) -> None:
        """A vector of kind ``message``; the body holds its verdict, finding and contents.

        The bytes of a valid one are ``canonical``, if that option says nothing else.
        Without ``annotate`` the layout has one place, the whole message: for right messages with hundreds of elements.
        ``bomb``: the name of the recipe of a body that is too large for a file.
        """
        contents = {} if body.contents is None else {"message": body.contents, "consumed": body.consumed}
        if bomb is not None:
            contents["message"] = contents_digest(body.contents)
        whole = {"at": 0, "size": len(body.data), "field": "message"}
        layout = [place.to_json() for place in body.places] if annotate else [whole]
        which: Json = {"message": body.definition.name, "version": body.version}
        self._add_read(slug, summary, body, contents, layout, bomb=bomb, **which, **options)

    def named(self, slug: str, text: str, body: Body, **options: Any) -> None:
        """A vector of kind ``message`` whose id and summary begin with the message's name and version."""
        self.message(f"{body.slug}-{slug}", f"{body.title}: {text}", body, **options)

    @adding
    def primitive(self, slug: str, summary: str, single: Single, **options: Any) -> None:
        """A vector of kind ``primitive``; ``single`` holds its verdict, finding and value."""
        contents = {} if single.value is NOTHING else {"value": single.value, "consumed": single.size}
        hostile = {"hostile": True} if single.finding is not None else {}
        layout = [{"at": 0, "size": len(single.data), "field": "value"} | hostile]
        self._add_read(slug, summary, single, contents, layout, primitive=single.primitive, **options)

    def _add_read(
        self, slug: str, summary: str, made: Body | Single, contents: Json, layout: Sequence[Json], **options: Any
    ) -> None:
        """Add a vector whose only role is ``reader``; ``contents`` is empty for a refusal."""
        finding = {"finding": made.finding} if made.finding is not None else {}
        expect = {"reader": {"verdict": made.verdict, **finding, **contents}}
        options = {"canonical": made.verdict == "valid"} | options
        self._add(slug, summary, made.data, layout=layout, expect=expect, **options)


def _layout(raw: Raw) -> list[Json]:
    return [place.to_json() for place in raw.layout]
