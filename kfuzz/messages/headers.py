"""Which version the header of a request or a response has.

No byte gives the version of the header. It follows from the API key and the version of the request or response that
comes after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kfuzz.errors import UsageError
from kfuzz.messages.model import Definition, Kind

if TYPE_CHECKING:
    from typing_extensions import Buffer

_CONTROLLED_SHUTDOWN: Final = 7
_API_VERSIONS: Final = 18
# The error code of an ApiVersions response, after the correlation id.
_ERROR_AT: Final = slice(4, 6)
_UNSUPPORTED_VERSION: Final = (35).to_bytes(2, "big")


def request_header_version(request: Definition, version: int) -> int:
    """The version of ``RequestHeader``: 2 if ``version`` of the request is flexible, otherwise 1.

    One request has header version 0, without a client id: ControlledShutdown 0, which Kafka 4 no longer has.
    ``version`` need not be valid, because a broker reads the header of an ApiVersions request that is too new for it.
    Raises ``UsageError`` if the definition is not a request. Mirrors
    ``org.apache.kafka.common.message.ApiMessageType.requestHeaderVersion``.

    >>> from kfuzz.messages.catalogues import catalogue
    >>> from kfuzz.messages.headers import request_header_version
    >>> request_header_version(catalogue().find("FetchRequest"), 17)
    2
    """
    _require(request, "request")
    if request.api_key == _CONTROLLED_SHUTDOWN and version == 0:
        return 0
    return 2 if version in request.flexible_versions else 1


def response_header_version(response: Definition, version: int) -> int:
    """The version of ``ResponseHeader``: 1 if ``version`` of the response is flexible, otherwise 0.

    For ApiVersions it is always 0: the client does not know yet which versions the broker has, and must be able to read
    the answer. ``version`` need not be valid. Raises ``UsageError`` if the definition is not a response. Mirrors
    ``org.apache.kafka.common.message.ApiMessageType.responseHeaderVersion``.

    >>> from kfuzz.messages.catalogues import catalogue
    >>> from kfuzz.messages.headers import response_header_version
    >>> response_header_version(catalogue().find("FetchResponse"), 17)
    1
    """
    _require(response, "response")
    if response.api_key == _API_VERSIONS:
        return 0
    return 1 if version in response.flexible_versions else 0


def written_version(response: Definition, version: int, frame: Buffer) -> int:
    """The version in which a response is written; ``frame`` has its header, but not its size.

    A broker answers an ApiVersions request of a version that it does not have in version 0, with the error
    UNSUPPORTED_VERSION. Every other response has the version of its request. Mirrors
    ``org.apache.kafka.clients.NetworkClient``.
    """
    is_older = response.api_key == _API_VERSIONS and memoryview(frame)[_ERROR_AT] == _UNSUPPORTED_VERSION
    return 0 if is_older else version


def _require(definition: Definition, kind: Kind) -> None:
    if definition.kind != kind:
        raise UsageError(f"{definition.name} is a {definition.kind}; take the definition of a {kind}")
