"""Kafka's messages: the language they are defined in, the definitions of Kafka's releases, and what may change between
two of them. May import ``kfuzz.records`` and what is below it.
"""

from kfuzz.messages.language import parse_definition, parse_versions
from kfuzz.messages.model import Definition, Field, Struct, Type, Versions

__all__ = ["Definition", "Field", "Struct", "Type", "Versions", "parse_definition", "parse_versions"]
