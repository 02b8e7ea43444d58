"""Kafka's messages: every request, response, header and record of its own logs, at every version.

kfuzz carries the definitions of Kafka's releases. With them you turn values into bytes, and bytes into values:

>>> from kfuzz import messages
>>> data = messages.encode("ApiVersionsRequest", 3, {"clientSoftwareName": "kfuzz", "clientSoftwareVersion": "1"})
>>> messages.decode("ApiVersionsRequest", 3, data)
{'clientSoftwareName': 'kfuzz', 'clientSoftwareVersion': '1'}

Four modules have more: ``catalogues`` finds definitions, ``language`` parses other definitions, ``evolution`` compares
two releases, and ``headers`` gives the version of the header in front of a message.
"""

from kfuzz.errors import EncodeError, MessageError
from kfuzz.messages.codec import Message, MessageReading, MessageVerdict, check, decode, encode, read, size
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
