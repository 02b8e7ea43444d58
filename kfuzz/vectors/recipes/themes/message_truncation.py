"""Small messages, truncated after each of their bytes."""

from __future__ import annotations

from kfuzz.messages.codec import read
from kfuzz.vectors.recipes.making.message import Body, Place, body
from kfuzz.vectors.recipes.theme import Theme

# Together they have fixed and compact lengths, texts, bytes, arrays, tags, and a struct that may be null.
SMALL_MESSAGES = (
    ("RequestHeader", 1, {"requestApiKey": 18, "requestApiVersion": 0, "correlationId": 7, "clientId": "me"}),
    ("RequestHeader", 2, {"requestApiKey": 18, "requestApiVersion": 3, "correlationId": 7, "clientId": "me"}),
    ("ResponseHeader", 1, {"correlationId": 7}),
    ("ApiVersionsRequest", 3, {"clientSoftwareName": "me", "clientSoftwareVersion": "1"}),
    ("ApiVersionsResponse", 0, {"apiKeys": [{"apiKey": 18, "minVersion": 0, "maxVersion": 4}]}),
    ("MetadataRequest", 4, {"topics": [{"name": "t"}], "allowAutoTopicCreation": True}),
    ("MetadataRequest", 9, {"topics": [{"name": "t"}], "_unknownTaggedFields": [(20, b"x")]}),
    ("SaslHandshakeRequest", 1, {"mechanism": "PLAIN"}),
    ("SaslAuthenticateRequest", 2, {"authBytes": b"\x00u\x00p"}),
    ("DescribeTopicPartitionsRequest", 0, {"topics": [], "cursor": {"topicName": "t", "partitionIndex": 1}}),
    ("FetchRequest", 12, {"clusterId": "c", "topics": []}),
)
CUT = ["MSG-FIELDS-1"]


def theme() -> Theme:
    """The recipes of ``vectors/messages/truncation.json``."""
    made = Theme(
        "messages/truncation",
        "Small messages, truncated after each of their bytes. A reader must refuse each.",
        "message",
    )
    for name, version, values in SMALL_MESSAGES:
        whole = body(name, version, values)
        made.message(f"{whole.slug}-whole", f"{name} in version {version}, complete", whole, requirements=CUT)
        for end in range(len(whole.data)):
            made.message(
                f"{whole.slug}-cut-at-{end}",
                f"{name} in version {version}, truncated to {end} of {len(whole.data)} bytes",
                _cut(whole, end),
                requirements=CUT,
            )
    return made


def _cut(whole: Body, end: int) -> Body:
    data = whole.data[:end]
    fatal = read(whole.definition, whole.version, data).fatal
    assert fatal is not None, f"{whole.slug} can be read without its last bytes"
    # The field that is cut or missing. A reader may refuse a count because its elements cannot fit.
    hostile = next(one for one in whole.places if one.at <= fatal.at < one.at + one.size)
    before = tuple(one for one in whole.places if one.at < hostile.at)
    cut = Place(hostile.at, min(end - hostile.at, hostile.size), hostile.path, hostile.part, True)
    return Body(whole.definition, whole.version, data, (*before, cut), None, fatal.code)
