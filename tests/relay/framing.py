"""Frames without sockets: as a connection's side sees them."""

from __future__ import annotations

from typing import Any

from kfuzz.messages import encode
from kfuzz.relay.frames import Direction, Exchange, Frame, api_key, api_of

Values = dict[str, Any]


def exchange(api: str, version: int, *, nth: int = 1, connection: int = 1, client_id: str | None = "app-1") -> Exchange:
    key = api_key(api)
    return Exchange(connection, nth, nth, key, version, 7, client_id, api_of(key, version))


def frame(one: Exchange, direction: Direction, values: Values) -> Frame:
    """A checked frame with these values."""
    assert one.api is not None
    form = one.api.form(direction)
    header: Values = {"correlationId": one.correlation_id}
    if direction == "request":
        header |= {"requestApiKey": one.key, "requestApiVersion": one.version, "clientId": one.client_id}
    data = encode(form.header_name, form.header_version, header) + encode(form.definition, form.version, values)
    made = Frame(one, direction, data)
    made.check()
    assert made.is_read
    return made


def values_of(one: Exchange, direction: Direction, step: object) -> Values:
    """The values of a frame in a step that sends it."""
    assert isinstance(step, bytes)
    assert int.from_bytes(step[:4], "big") == len(step) - 4
    made = Frame(one, direction, step[4:])
    made.check()
    return made.values()
