"""The captured bytes of a connection: requests that one client sent, and the responses to them.

A frame is an int32 length, a header and a message. No byte of a response says what it answers: that is known by the
correlation id of its request. So responses are read beside the requests of the same connection.
"""

from __future__ import annotations

import itertools
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from kfuzz.annotate.dump import PARTS_MAX, Dump, bounds_of, outcome_of
from kfuzz.annotate.listing import row
from kfuzz.annotate.messages import annotate
from kfuzz.annotate.parts import Part, moved
from kfuzz.errors import UsageError
from kfuzz.findings import Finding, Profile
from kfuzz.kafka import RELEASES
from kfuzz.messages import check, read
from kfuzz.messages.catalogues import catalogue, newest, requests_by_key
from kfuzz.messages.headers import request_header_version, response_header_version, written_version
from kfuzz.messages.model import Definition
from kfuzz.text import printable

if TYPE_CHECKING:
    from typing_extensions import Buffer

LENGTH_BYTES: Final = 4
# The API key and the version, in front of every request's header.
KEY_BYTES: Final = 4
CORRELATION_BYTES: Final = 4
# A broker answers the requests of a connection in their order.
WAITING_MAX: Final = 50_000
# The lines of a list: each, and the columns that a terminal must have for it.
FORMATS: Final = (
    (140, "{:>8} {:>12} {:>9}  {:<32} {:>7} {:>12}  {:<24}  {}"),
    (0, "{0:>6} {1:>11} {2:>9}  {3:<21.21} {4:>7} {5:>11}  {7}"),
)
# Where the requests of a connection begin, and the responses.
Starts = tuple[Sequence[int], Sequence[int]]
# The width of the column with the number of a connection.
CONNECTION_WIDTH: Final = 6


@dataclass(slots=True)
class Frame:
    """A request or a response. ``size`` counts its length too; ``at`` is where that is.

    ``name`` is that of the message, such as FetchRequest; empty for a frame of an API that no known release has, and
    for one that is cut off. ``definition`` is None if this version of it is not known. ``body_at`` is where the message
    begins. ``findings`` are those of the message and of the record batches inside. ``error`` says why no message could
    be read. ``is_stray``: it is a response that belongs to no request. ``is_early``: the capture began after its
    request, or lacks it, which is no error.
    """

    number: int
    at: int
    size: int
    name: str = ""
    version: int = -1
    correlation_id: int | None = None
    client_id: str | None = None
    definition: Definition | None = None
    header_version: int = 0
    body_at: int = 0
    findings: list[Finding] = field(default_factory=list)
    error: str = ""
    answer: Frame | None = None
    is_stray: bool = False
    is_early: bool = False

    @property
    def is_refused(self) -> bool:
        """Whether Kafka refuses it."""
        return bool(self.error) or any(one.severity == "fatal" for one in self.findings)

    def to_json(self) -> dict[str, Any]:
        """The frame as a JSON object."""
        made = {
            "frame": self.number,
            "at": self.at,
            "size": self.size,
            "message": self.name,
            "version": self.version,
            "correlation_id": self.correlation_id,
            "findings": [one.to_json() for one in self.findings],
        }
        if self.name.endswith("Request"):
            made["client_id"] = self.client_id
            made["answer"] = None if self.answer is None else self.answer.to_json()
        if self.is_early:
            made["early"] = True
        return made | ({"error": self.error} if self.error else {})


def frames_of(
    requests: Buffer, responses: Buffer | None = None, *, profile: Profile = "kafka", starts: Starts | None = None
) -> Iterator[Frame]:
    """The requests in ``requests``, in order, each with its answer in ``responses``, if there is one.

    A response whose correlation id no request has comes last, as a frame without a name. A capture may begin in the
    middle of a conversation: the responses before the first one that answers a captured request are early. Only the
    next ``WAITING_MAX`` responses are in memory; if there are more, and the first of them waits in vain, it comes
    earlier. Raises nothing on bad bytes; where a length is wrong, the last frame has the rest of the bytes.

    ``starts`` says where whole frames begin, for bytes with holes; then every response without a request is early.
    """
    view = memoryview(requests).cast("B")
    given = memoryview(b"" if responses is None else responses).cast("B")
    asked, answers = _split(view, starts and starts[0]), _responses(given, starts and starts[1])
    first_answer = None if starts is None else len(given)
    # By correlation id, and by place.
    waiting: dict[int, deque[Frame]] = defaultdict(deque)
    order: dict[int, Frame] = {}
    first_id: int | None = None

    def taken(answer: Frame) -> Frame:
        """The first that waits with its correlation id does so no more."""
        del order[answer.at]
        if (number := answer.correlation_id) is not None:
            waiting[number].popleft()
            if not waiting[number]:
                del waiting[number]
        return answer

    for frame in asked:
        if not frame.error:
            _read_request(view, frame, profile)
        for answer in itertools.islice(answers, WAITING_MAX - len(order)):
            order[answer.at] = answer
            if answer.correlation_id is not None:
                waiting[answer.correlation_id].append(answer)
        found = None if frame.correlation_id is None else waiting.get(frame.correlation_id)
        if found:
            frame.answer = taken(found[0])
            _read_response(given, frame.answer, frame, profile)
            if starts is None:
                first_answer = min(frame.answer.at, frame.answer.at if first_answer is None else first_answer)
        elif len(order) == WAITING_MAX:
            yield _stray(taken(next(iter(order.values()))), first_answer, first_id)
        if first_id is None:
            first_id = frame.correlation_id
        yield frame
    while order:
        yield _stray(taken(next(iter(order.values()))), first_answer, first_id)
    for answer in answers:
        yield _stray(answer, first_answer, first_id)


def _stray(frame: Frame, first_answer: int | None, first_id: int | None) -> Frame:
    """A response without a request. ``first_answer`` is where the first response to a captured request is, if there is
    one, and ``first_id`` the correlation id of the first request.
    """
    frame.is_stray = True
    if frame.correlation_id is None:
        return frame
    if first_answer is not None:
        frame.is_early = frame.at < first_answer
    else:
        # A client counts its requests.
        frame.is_early = first_id is not None and frame.correlation_id < first_id
    if not frame.is_early:
        frame.error = f"no request has the correlation id {frame.correlation_id}"
    return frame


def _split(view: memoryview, starts: Sequence[int] | None) -> Iterator[Frame]:
    if starts is not None:
        for number, at in enumerate(starts):
            yield Frame(number, at, LENGTH_BYTES + _int(view, at, LENGTH_BYTES))
        return
    at = number = 0
    while at < len(view):
        left = len(view) - at
        size = LENGTH_BYTES + _int(view, at, LENGTH_BYTES) if left >= LENGTH_BYTES else left
        if left < LENGTH_BYTES or size < LENGTH_BYTES or size > left:
            error = f"the length is {size - LENGTH_BYTES}, and {left - LENGTH_BYTES} bytes are left"
            yield Frame(number, at, left, error=f"{left} bytes are left" if left < LENGTH_BYTES else error)
            return
        yield Frame(number, at, size)
        at += size
        number += 1


def _responses(view: memoryview, starts: Sequence[int] | None) -> Iterator[Frame]:
    """The frames of responses, with their correlation ids."""
    for frame in _split(view, starts):
        if not frame.error and frame.size < LENGTH_BYTES + CORRELATION_BYTES:
            frame.error = "the frame is shorter than a response's header"
        elif not frame.error:
            frame.correlation_id = _int(view, frame.at + LENGTH_BYTES, CORRELATION_BYTES)
        yield frame


def _read_request(view: memoryview, frame: Frame, profile: Profile) -> None:
    at, end = frame.at + LENGTH_BYTES, frame.at + frame.size
    if end - at < KEY_BYTES:
        frame.error = "the frame is shorter than a request's header"
        return
    key, frame.version = _int(view, at, 2), _int(view, at + 2, 2)
    if end - at >= KEY_BYTES + CORRELATION_BYTES:
        frame.correlation_id = _int(view, at + KEY_BYTES, CORRELATION_BYTES)
    request = requests_by_key().get(key)
    if request is None:
        frame.error = f"no release that kfuzz knows has an API with the key {key}"
        return
    frame.name = request.name
    frame.header_version = request_header_version(request, frame.version)
    _read_messages(view, frame, "RequestHeader", profile)


def _read_response(view: memoryview, frame: Frame, request: Frame, profile: Profile) -> None:
    if not request.name:
        frame.error = "its request could not be read"
        return
    frame.name = f"{request.name.removesuffix('Request')}Response"
    definition = _response(frame.name)
    data = view[frame.at + LENGTH_BYTES : frame.at + frame.size]
    frame.version = written_version(definition, request.version, data)
    frame.header_version = response_header_version(definition, frame.version)
    _read_messages(view, frame, "ResponseHeader", profile)


def _read_messages(view: memoryview, frame: Frame, name: str, profile: Profile) -> None:
    """Read the header, and the message if the header is not refused."""
    data = bytes(view[frame.at + LENGTH_BYTES : frame.at + frame.size])
    definition = newest(name, frame.header_version)
    # The message follows the header, which strict readers refuse.
    reading = read(definition, frame.header_version, data)
    found = check(definition, frame.header_version, data, profile=profile).findings
    found = [one for one in found if one.code != "bytes-after-message"]
    frame.findings += [replace(one, at=one.at + frame.at + LENGTH_BYTES) for one in found]
    if reading.message is None:
        return
    frame.client_id = reading.message.get("clientId")
    frame.body_at = frame.at + LENGTH_BYTES + reading.consumed
    try:
        frame.definition = newest(frame.name, frame.version)
    except UsageError as error:
        frame.error = str(error)
        return
    data = bytes(view[frame.body_at : frame.at + frame.size])
    # Without batches there are few parts to make, and all findings.
    made = annotate(frame.definition, frame.version, data, profile=profile, batches=0, parts_most=PARTS_MAX)
    frame.findings += [moved(one, frame.body_at, one.path) for one in made.findings]


def dump_frame(
    data: Buffer,
    frame: Frame,
    *,
    profile: Profile = "kafka",
    batches: int | None = None,
    records_shown: int | None = None,
) -> Dump:
    """The dump of a frame of ``data``: its length, its header, its message, and the record batches inside."""
    bounds = bounds_of(records_shown)
    is_cut = False
    view = memoryview(data).cast("B")
    end = frame.at + frame.size
    name = f"frame[{frame.number}]"
    parts = [Part(name, "", frame.at, b"", f"{frame.size} bytes", heading=True)]
    length = bytes(view[frame.at : min(frame.at + LENGTH_BYTES, end)])
    parts.append(Part(name, "length", frame.at, length, str(int.from_bytes(length, "big", signed=True))))
    findings: list[Finding] = []
    at = min(frame.at + LENGTH_BYTES, end)
    messages: list[tuple[Definition, int, int]] = []
    if frame.name:
        kind = "RequestHeader" if frame.name.endswith("Request") else "ResponseHeader"
        messages.append((newest(kind, frame.header_version), frame.header_version, frame.body_at or end))
    if frame.definition is not None:
        messages.append((frame.definition, frame.version, end))
    outcome = f"refused: {frame.error}" if frame.error else f"refused: {frame.name} version {frame.version}"
    for definition, version, stop in messages:
        made = annotate(
            definition,
            version,
            bytes(view[at:stop]),
            profile=profile,
            batches=batches,
            bounds=bounds,
            parts_most=PARTS_MAX,
        )
        is_cut = made.is_cut
        # Offsets into a decompressed payload stay as they are.
        parts += [part if part.payload else replace(part, at=part.at + at) for part in made.parts]
        findings += [moved(one, at, one.path) for one in made.findings]
        at = stop
    if frame.definition is not None:
        outcome = outcome_of(f"{frame.name} version {frame.version}", made)
    elif at < end:
        kept, more = bounds.kept(view, at, end)
        parts.append(Part(name, "rest", at, kept, f"{end - at} bytes", cut_bytes=more))
    return Dump(parts, findings, {"frame": frame.to_json()}, outcome, is_cut)


def heading(width: int | None = None) -> str:
    """The line above a list; ``width`` is that of a terminal."""
    return row(FORMATS, width, "frame", "byte", "size", "request", "version", "correlation", "client", "answer")


def line_of(frame: Frame, width: int | None = None) -> list[str]:
    """The lines of a frame: one, and one more for each finding of it and of its answer. ``width`` is a terminal's."""
    who = printable(frame.client_id or "")
    number = "-" if frame.correlation_id is None else str(frame.correlation_id)
    answer = f"{frame.answer.size} bytes at byte {frame.answer.at}" if frame.answer else ""
    if frame.is_early:
        answer = "answers a request that is not captured"
    version = str(frame.version) if frame.name else "-"
    name = frame.name.removesuffix("Request") or "?"
    lines = [row(FORMATS, width, frame.number, frame.at, frame.size, name, version, number, who, answer)]
    for one in (frame, frame.answer):
        if one is not None:
            what = "the frame" if one is frame else "the answer"
            what = "a response" if one.is_stray else what
            lines += [f"{'':10}{found.severity}: {printable(str(found))}" for found in one.findings]
            if one.error:
                lines.append(f"{'':10}fatal: {what} at byte {one.at}: {one.error}")
    return lines


def table(found: Iterable[tuple[int, Frame]], width: int | None = None, *, numbered: bool = False) -> Iterator[str]:
    """The heading and the lines of frames; if they are ``numbered``, each with the number of its connection."""
    before = CONNECTION_WIDTH if numbered else 0
    left = None if width is None else max(width - before, 1)
    yield f"{'conn.'[:before]:>{before}}{heading(left)}"
    for connection, frame in found:
        shown: object = connection if numbered else ""
        for line in line_of(frame, left):
            yield f"{shown:>{before}}{line}"
            shown = ""


@dataclass(slots=True)
class Sums:
    """The sums over the frames."""

    requests: int = 0
    answers: int = 0
    strays: int = 0
    early: int = 0
    refused: int = 0

    def counted(self, frames: Iterable[Frame]) -> Iterator[Frame]:
        """The same frames; each is counted with its answer before it is yielded."""
        for frame in frames:
            self.requests += not frame.is_stray
            self.strays += frame.is_stray and not frame.is_early
            self.early += frame.is_early
            self.answers += frame.answer is not None
            self.refused += frame.is_refused + (frame.answer is not None and frame.answer.is_refused)
            yield frame


def summary(sums: Sums) -> list[str]:
    """The lines under a list of frames."""
    strays = f", {sums.strays} responses to none of them" if sums.strays else ""
    lines = [f"{sums.requests} requests, {sums.answers} with a response{strays}, {sums.refused} frames cannot be read"]
    if sums.early:
        lines.append(
            f"the capture begins in the middle of a conversation: {sums.early} responses answer requests before it, so "
            "they are not read"
        )
    return lines


@cache
def _response(name: str) -> Definition:
    return next(
        catalogue(release).messages[name] for release in reversed(RELEASES) if name in catalogue(release).messages
    )


def _int(view: memoryview, at: int, size: int) -> int:
    return int.from_bytes(view[at : at + size], "big", signed=True)
