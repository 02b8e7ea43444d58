"""Which version of its header stands in front of a request or a response.

The header's version is nowhere in the bytes: it follows from the number and the version of what it stands in front of.
"""

from __future__ import annotations

from typing import Final

from kfuzz.errors import UsageError
from kfuzz.messages.model import Definition, Kind

__all__ = ["request_header_version", "response_header_version"]

_CONTROLLED_SHUTDOWN: Final = 7
_API_VERSIONS: Final = 18


def request_header_version(request: Definition, version: int) -> int:
    """The version of ``RequestHeader``: 2 where ``version`` of the request is flexible, else 1.

    ControlledShutdown 0, which ended with Kafka 3, has a header 0, without client id. ``version`` need not be a valid
    one: a broker reads the header of an ApiVersions request that is too new for it. ``UsageError`` for a definition
    that is no request. Mirrors ``org.apache.kafka.common.message.ApiMessageType.requestHeaderVersion``.
    """
    _require(request, "request")
    if request.api_key == _CONTROLLED_SHUTDOWN and version == 0:
        return 0
    return 2 if version in request.flexible_versions else 1


def response_header_version(response: Definition, version: int) -> int:
    """The version of ``ResponseHeader``: 1 where ``version`` of the response is flexible, else 0.

    That of ApiVersions is always 0: whoever asks does not know yet what the broker can say, and must be able to read
    it. ``version`` need not be a valid one. ``UsageError`` for a definition that is no response. Mirrors
    ``org.apache.kafka.common.message.ApiMessageType.responseHeaderVersion``.
    """
    _require(response, "response")
    if response.api_key == _API_VERSIONS:
        return 0
    return 1 if version in response.flexible_versions else 0


def _require(definition: Definition, kind: Kind) -> None:
    if definition.kind != kind:
        raise UsageError(f"{definition.name} is a {definition.kind}; take the definition of a {kind}")
