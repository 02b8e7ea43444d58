"""The messages that clients need most, in each of their versions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kfuzz.messages.catalogues import newest
from kfuzz.messages.codec import read
from kfuzz.vectors.recipes.making.builder import Record
from kfuzz.vectors.recipes.making.large_message import (
    BYTES_SIZES,
    INTEGERS_SIZES,
    MESSAGES,
    PRODUCE_VERSIONS,
    integers_recipe,
    produce_recipe,
)
from kfuzz.vectors.recipes.making.message import (
    Body,
    Place,
    body,
    definitions,
    nullable_fields,
    versions_of,
    with_nulls,
    with_several,
)
from kfuzz.vectors.recipes.making.sent import batch_of
from kfuzz.vectors.recipes.theme import Theme
from kfuzz.vectors.recipes.themes.message_requests import requirements_of

UNSUPPORTED_VERSION = 35
NOT_LEADER_OR_FOLLOWER = 6
API_VERSIONS_KEY = 18
# The oldest version with record batches, the oldest flexible one, and the first with topic ids.
CUT_VERSIONS = (4, 12, 13)
# Those with records and cluster metadata come first: their responses are the ones that clients read most.
READ_MOST = ("Fetch", "Produce", "Metadata")
APIS = (
    *READ_MOST,
    "AddPartitionsToTxn",
    "ApiVersions",
    "EndTxn",
    "FindCoordinator",
    "InitProducerId",
    "JoinGroup",
    "ListOffsets",
    "OffsetCommit",
    "OffsetFetch",
    "SyncGroup",
)
NAMES = tuple(f"{api}{kind}" for api in APIS for kind in ("Request", "Response"))


def theme() -> Theme:
    """The recipes of ``vectors/messages/versions.json``."""
    made = Theme("messages/versions", "The messages that clients need most, in each of their versions.", "message")
    for name in NAMES:
        # The newest version is in messages/requests or messages/responses.
        for version in versions_of(name)[:-1]:
            text = f"{name} in version {version}, with a value in every field"
            _add(made, "", text, body(name, version))
    _nulls(made)
    _several(made)
    _leaders(made)
    _cut(made)
    _fallback(made)
    _sizes(made)
    return made


def _add(
    made: Theme, slug: str, text: str, whole: Body, *more: str, bomb: str | None = None, flags: Sequence[str] = ()
) -> None:
    requirements = list(dict.fromkeys([*requirements_of(whole), *more]))
    name = f"{whole.slug}-{slug}" if slug else whole.slug
    made.message(name, text, whole, requirements=requirements, annotate=False, bomb=bomb, flags=flags)


def _nulls(made: Theme) -> None:
    """Null wherever it is allowed: in versions in which more or other fields may be null, or are written otherwise."""
    for name in NAMES:
        before = None
        for version in versions_of(name):
            definition = newest(name, version)
            fields = nullable_fields(definition, version), version in definition.flexible_versions
            if fields[0] and fields != before:
                text = f"{name} in version {version}, with null in every field that may be null"
                _add(made, "nulls", text, with_nulls(name, version), "MSG-NULL-1")
            before = fields
    for name in (one.name for one in definitions("request", "response") if one.name not in NAMES):
        *earlier, last = versions_of(name)
        # A null array is -1 before the flexible versions. A library may know that for some versions only.
        chosen = [version for version in earlier if _has_null_array(name, version)]
        chosen += [last] if nullable_fields(newest(name, last), last) else []
        for version in chosen:
            text = f"{name} in version {version}, with null in every field that may be null"
            _add(made, "nulls", text, with_nulls(name, version), "MSG-NULL-1")


def _has_null_array(name: str, version: int) -> bool:
    """Whether the version writes counts of fixed size, and one of its arrays may be null."""
    definition = newest(name, version)
    return version not in definition.flexible_versions and bool(nullable_fields(definition, version, arrays=True))


def _several(made: Theme) -> None:
    """Two elements in each array, so that what is read wrongly at the end of the first one damages the second."""
    for name in NAMES:
        versions = versions_of(name)
        flexible = [version for version in versions if version in newest(name, version).flexible_versions]
        is_read_most = name.removesuffix("Request").removesuffix("Response") in READ_MOST
        for version in flexible if is_read_most else sorted({flexible[0], flexible[-1]}):
            text = f"{name} in version {version}, with two elements in each array and unknown tags in the first"
            _add(made, "several", text, with_several(name, version), "MSG-TAG-3")


def _leaders(made: Theme) -> None:
    """Tagged fields in the first partition, and data in the second."""
    leader = {"leaderId": 2, "leaderEpoch": 5}
    endpoint = {"nodeId": 2, "host": "broker", "port": 9092, "rack": None}
    for version, topic in _topics("FetchResponse", 12):
        failed: dict[str, Any] = {
            "partitionIndex": 0,
            "errorCode": NOT_LEADER_OR_FOLLOWER,
            "highWatermark": -1,
            "records": None,
        }
        good = {"partitionIndex": 1, "highWatermark": 1, "lastStableOffset": 1, "records": _records()}
        places = {"divergingEpoch": {"epoch": 4, "endOffset": 9}, "snapshotId": {"endOffset": 9, "epoch": 4}}
        end = {"nodeEndpoints": [endpoint]} if version >= 16 else {}
        for slug, text, tags in (
            ("leader", "the first partition has a new leader", {"currentLeader": leader}),
            ("tagged", "the first partition has all tagged fields", {"currentLeader": leader, **places}),
        ):
            partitions = [{**failed, **tags}, good]
            values = {"responses": [{**topic, "partitions": partitions}], **end}
            whole = body("FetchResponse", version, values)
            _add(
                made,
                slug,
                f"FetchResponse in version {version}: {text}, the second one has records",
                whole,
                "MSG-TAG-1",
            )
    for version, topic in _topics("ProduceResponse", 10):
        failed = {"index": 0, "errorCode": NOT_LEADER_OR_FOLLOWER, "baseOffset": -1, "currentLeader": leader}
        partitions = [failed, {"index": 1, "baseOffset": 77, "errorMessage": None}]
        values = {"responses": [{**topic, "partitionResponses": partitions}], "nodeEndpoints": [endpoint]}
        whole = body("ProduceResponse", version, values)
        text = f"ProduceResponse in version {version}: the first partition has a new leader, the second one is written"
        _add(made, "leader", text, whole, "MSG-TAG-1")


def _topics(name: str, lowest: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """The versions from ``lowest`` on, each with the name or id of a topic."""
    by_id = 13
    for version in (version for version in versions_of(name) if version >= lowest):
        named = {"topic" if name == "FetchResponse" else "name": "t"}
        yield version, {"topicId": bytes(range(16))} if version >= by_id else named


def _cut(made: Theme) -> None:
    """A cut batch, as a broker ends a partition at its limit. The batch claims bytes of the next partition."""
    whole = _records()
    for version, topic in _topics("FetchResponse", 4):
        if version in CUT_VERSIONS:
            partitions = [
                {"partitionIndex": index, "highWatermark": 2, "lastStableOffset": 2, "records": data}
                for index, data in enumerate((whole + whole[:-9], whole))
            ]
            values = {"responses": [{**topic, "partitions": partitions}]}
            text = f"FetchResponse in version {version}: the last batch of the first partition is cut"
            flags = ["CutBeforePartition"]
            _add(made, "cut", text, body("FetchResponse", version, values), "RB-SEVERAL-1", flags=flags)


def _records() -> bytes:
    return batch_of([Record()]).data


def _fallback(made: Theme) -> None:
    """A broker that does not know the version of an ApiVersions request answers in version 0."""
    key = {"apiKey": API_VERSIONS_KEY, "minVersion": 0, "maxVersion": 3}
    answer = body("ApiVersionsResponse", 0, {"errorCode": UNSUPPORTED_VERSION, "apiKeys": [key]})
    _add(made, "error-35", "the answer to a version that the broker does not know", answer, "MSG-ERRORS-1")
    for version in range(1, 5):
        definition = newest("ApiVersionsResponse", version)
        finding = read(definition, version, answer.data).fatal
        assert finding is not None
        before = [place for place in answer.places if place.at < finding.at]
        hostile = Place(finding.at, len(answer.data) - finding.at, "apiKeys", "rest", hostile=True)
        made.flag("AnsweredInVersion0").message(
            f"api-versions-response-v{version}-answered-in-v0",
            f"the answer of a broker that knows only version 0, read in version {version}",
            Body(definition, version, answer.data, (*before, hostile), None, finding.code),
            requirements=["MSG-HEADER-1", "MSG-FIELDS-1"],
        )


def _sizes(made: Theme) -> None:
    for version in PRODUCE_VERSIONS:
        for size in BYTES_SIZES:
            recipe = produce_recipe(version, size)
            if recipe in MESSAGES:
                text = f"ProduceRequest in version {version} of {size:,} bytes"
                _add(made, f"of-{size}", text, MESSAGES[recipe](), bomb=recipe)
    for size in INTEGERS_SIZES:
        text = f"OffsetFetchRequest in version 5 of {size:,} bytes, with an array of numbers"
        _add(made, f"of-{size}", text, MESSAGES[integers_recipe(size)](), bomb=integers_recipe(size))
