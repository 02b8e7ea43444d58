"""Kafka's messages: every request, response, header and record of its own logs, at every version.

Bytes and values, by the definitions that kfuzz carries of Kafka's releases:

>>> from kfuzz import messages
>>> data = messages.encode("ApiVersionsRequest", 3, {"clientSoftwareName": "kfuzz", "clientSoftwareVersion": "1"})
>>> messages.decode("ApiVersionsRequest", 3, data)
{'clientSoftwareName': 'kfuzz', 'clientSoftwareVersion': '1'}

``catalogue`` has the definitions, ``language`` reads others, ``evolution`` says what may change between two releases,
``headers`` which header stands in front.
"""

from kfuzz.errors import EncodeError, MessageError
from kfuzz.messages.codec import (
    Message,
    MessageReading,
    MessageVerdict,
    check,
    decode,
    encode,
    read,
    size,
)
from kfuzz.messages.language import parse_definition, parse_versions
from kfuzz.messages.model import Definition, Field, Struct, Type, Versions

__all__ = [
    "Definition",
    "EncodeError",
    "Field",
    "Message",
    "MessageError",
    "MessageReading",
    "MessageVerdict",
    "Struct",
    "Type",
    "Versions",
    "check",
    "decode",
    "encode",
    "parse_definition",
    "parse_versions",
    "read",
    "size",
]
