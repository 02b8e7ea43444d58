"""The headers of requests and responses, as separate messages."""

from __future__ import annotations

from kfuzz.vectors.recipes.making.message import body
from kfuzz.vectors.recipes.theme import Theme


def theme() -> Theme:
    """The recipes of ``vectors/messages/headers.json``."""
    made = Theme("messages/headers", "The headers of requests and responses.", "message")
    made = made.having(requirements=["MSG-HEADER-1"])
    _oldest(made)
    for version in (1, 2):
        _requests(made, version)
    _responses(made)
    return made


def _oldest(made: Theme) -> None:
    """Version 0 has no client id. Only ControlledShutdown in version 0 used it."""
    values = {"requestApiKey": 7, "requestApiVersion": 0, "correlationId": 7}
    whole = body("RequestHeader", 0, values)
    made.message("request-v0-full", "a request's header in version 0, which has no client id", whole)
    end = whole.place("value", "correlationId")
    made.message(
        "request-v0-client-id",
        "a request's header in version 0 is followed by a client id, which is not part of it",
        whole.broken(end, whole.data[end.at :], "bytes-after-message", after=b"\x00\x02me"),
        also=["MSG-FIELDS-1"],
    )


def _requests(made: Theme, version: int) -> None:
    values = {"requestApiKey": 1, "requestApiVersion": 12, "correlationId": 7, "clientId": "kfuzz"}
    for slug, changes, summary in (
        ("full", {}, "every field has a value"),
        ("no-client", {"clientId": None}, "the client id is null"),
        ("empty-client", {"clientId": ""}, "the client id is empty, which is not null"),
        ("negative-correlation", {"correlationId": -1}, "the correlation id is -1, which means nothing special"),
        ("largest-correlation", {"correlationId": 2**31 - 1}, "the correlation id is the largest possible"),
        ("unknown-key", {"requestApiKey": 32767}, "the API key is not assigned; the header is still readable"),
        ("negative-key", {"requestApiKey": -1}, "the API key is -1; the header is still readable"),
    ):
        whole = body("RequestHeader", version, {**values, **changes})
        made.message(f"request-v{version}-{slug}", f"a request's header in version {version}: {summary}", whole)
    for name, key in (("produce", 0), ("fetch", 1), ("offset", 2), ("metadata", 3)):
        whole = body("RequestHeader", version, {**values, "requestApiKey": key})
        made.message(
            f"request-v{version}-key-{name}",
            f"a request's header in version {version} has the API key {key}",
            whole,
            also=["MSG-KEYS-1"],
        )
    # The client id's length has two bytes even in the flexible version, so that old readers can read it too.
    whole = body("RequestHeader", version, values)
    length = whole.place("length", "clientId")
    made.message(
        f"request-v{version}-client-length-minus-two",
        f"a request's header in version {version}: the client id has length -2",
        whole.broken(length, b"\xff\xfe", "length-below-minus-one", after=b"\x00" if version == 2 else b""),
        also=["MSG-NULL-1"],
    )
    made.message(
        f"request-v{version}-client-length-beyond",
        f"a request's header in version {version}: the client id is longer than the remaining bytes",
        whole.broken(length, b"\x7f\xff", "length-exceeds-message"),
        also=["MSG-BYTES-1"],
    )


def _responses(made: Theme) -> None:
    for version in (0, 1):
        for slug, number in (("full", 7), ("negative-correlation", -1)):
            whole = body("ResponseHeader", version, {"correlationId": number})
            made.message(
                f"response-v{version}-{slug}",
                f"a response's header in version {version}, with correlation id {number}",
                whole,
            )
    tagged = body("ResponseHeader", 1, {"correlationId": 7, "_unknownTaggedFields": [(0, b"\x01"), (9, b"")]})
    made.message(
        "response-v1-unknown-tags",
        "a response's header in version 1 has two unknown tags",
        tagged,
        also=["MSG-TAG-3"],
    )
