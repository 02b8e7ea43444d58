"""The format of a target's input: record batches, or a message. Dumps, vectors and the search for the fields
that kill need to know.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kfuzz.annotate.killing import KillingField
from kfuzz.edit.killing import killing_fields
from kfuzz.edit.tree import Message
from kfuzz.fuzz.messages import SELECTOR_SIZE, chosen
from kfuzz.fuzz.packing import in_batch, pack, stream_of, unpack
from kfuzz.fuzz.targets import Target


@dataclass(frozen=True, slots=True)
class Body:
    """The bytes that a decoder would get: ``data`` holds record batches, or ``message`` without a header.

    ``input_of`` makes an input of the target from such bytes.
    """

    data: bytes
    message: Message | None = None
    input_of: Callable[[bytes], bytes] = bytes


def body_of(target: Target, data: bytes) -> Body | None:
    """The body of an input; None if it has none, such as an input that the target skips.

    A batch whose payload the target compresses is compressed here, and a compressed stream gets a batch around it.
    """
    if target.flat_schema_of is not None:
        message = chosen(data)
        front = data[:SELECTOR_SIZE]
        return None if message is None else Body(data[SELECTOR_SIZE:], message, lambda body: front + body)
    if target.compresses:
        packed = pack(data)
        return None if packed is None else Body(packed, None, unpack)
    if target.streams:
        batch = in_batch(data)
        return None if batch is None else Body(batch, None, stream_of)
    return Body(data) if target.batches else None


def skipped(target: Target, data: bytes) -> str:
    """Why the target passes over an input and checks nothing; empty if it checks something."""
    if not data:
        return "it is empty"
    if target.flat_schema_of is not None and chosen(data) is None:
        return f"its first {SELECTOR_SIZE} bytes select no message"
    if target.compresses and pack(data) is None:
        return "it does not begin with a whole batch that has a codec"
    return ""


def killing_fields_of(target: Target, data: bytes, breaks: Callable[[bytes], bool]) -> tuple[KillingField, ...]:
    """The fields of an input's body without which the target does not break in the same way; see
    :func:`~kfuzz.edit.killing.killing_fields`. Empty if the input has no body.

    ``breaks`` says whether an input of the target breaks it in that way.
    """
    body = body_of(target, data)
    if body is None or not breaks(body.input_of(body.data)):
        return ()
    return killing_fields(body.data, lambda changed: breaks(body.input_of(changed)), body.message)
