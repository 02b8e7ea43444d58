"""The message definitions that Kafka's jars hold, and messages made from them; for tests only.

This is a second reading of the definitions, in few lines and without a codec: it says what a message's JSON must hold.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Of a whole line, or at its end; an `about` may well hold a URL.
_COMMENT = re.compile(r"^\s*//.*$|\s//[^\"\n]*$", re.MULTILINE)
_FILLING: dict[str, Any] = {
    "bool": True,
    "int8": -128,
    "int16": -32768,
    "uint16": 65535,
    "int32": 2147483646,
    "uint32": 4294967295,
    "int64": "-9223372036854775808",
    "float64": -1.5,
    "string": "é\U0001f600",
    "bytes": "00ff",
    "records": "deadbeef",
    "uuid": "AAECAwQFBgcICQoLDA0ODw",
}
UNKNOWN_TAG = {"tag": 9999, "hex": "0102"}


def versions(text: str) -> range:
    """``0``, ``2-5``, ``3+`` or ``none`` as a range; one without an end goes to the greatest int16."""
    if text == "none":
        return range(0)
    low, dash, high = text.removesuffix("+").partition("-")
    return range(int(low), 32768 if text.endswith("+") else int(high if dash else low) + 1)


@dataclass(frozen=True)
class Definition:
    """One message's definition, as JSON, and the messages that it allows in a version."""

    spec: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.spec["name"])

    @property
    def versions(self) -> range:
        return versions(self.spec["validVersions"])

    def defaults(self, version: int) -> dict[str, Any]:
        """The message in which every field has its default."""
        return self._default_struct(self.spec["fields"], version)

    def filled(self, version: int) -> dict[str, Any]:
        """A message in which no field has its default, with two equal elements in each array and unknown tags."""
        return self._filled_struct(self.spec["fields"], version)

    def nulled(self, version: int) -> dict[str, Any]:
        """The filled message with null wherever the version allows it."""
        return self._filled_struct(self.spec["fields"], version, null=True)

    def _default_struct(self, fields: Any, version: int) -> dict[str, Any]:
        return {_camel(field): self._default(field, version) for field in _of_version(fields, version)}

    def _default(self, field: dict[str, Any], version: int) -> Any:
        kind, text = field["type"], str(field.get("default", ""))
        if text == "null" or kind == "records":
            return None
        if kind.startswith("[]"):
            return []
        if kind[0].isupper():
            return self._default_struct(self._fields(field), version)
        if kind == "bool":
            return text.lower() == "true"
        if kind == "int64":
            return str(int(text or "0", 0))
        if "int" in kind:
            return int(text or "0", 0)
        if kind == "float64":
            return float(text or 0)
        return text or ("A" * 22 if kind == "uuid" else "")

    def _fields(self, field: dict[str, Any]) -> Any:
        """Those of the field's struct, which is defined at its place or among the common ones."""
        common = {struct["name"]: struct["fields"] for struct in self.spec.get("commonStructs", ())}
        return field.get("fields") or common[field["type"].removeprefix("[]")]

    def _filled_struct(self, fields: Any, version: int, *, null: bool = False) -> dict[str, Any]:
        made = {_camel(field): self._filling(field, version, null) for field in _of_version(fields, version)}
        if version in versions(self.spec["flexibleVersions"]):
            made["_unknownTaggedFields"] = [UNKNOWN_TAG]
        return made

    def _filling(self, field: dict[str, Any], version: int, null: bool) -> Any:
        if null and version in versions(field.get("nullableVersions", "none")):
            return None
        kind = field["type"].removeprefix("[]")
        if kind[0].isupper():
            value: Any = self._filled_struct(self._fields(field), version, null=null)
        else:
            value = _FILLING[kind]
        return [value, value] if field["type"].startswith("[]") else value


def _camel(field: dict[str, Any]) -> str:
    return str(field["name"][0].lower() + field["name"][1:])


def _of_version(fields: Any, version: int) -> Iterator[dict[str, Any]]:
    """A tagged field may leave its versions out: it is there where it is tagged."""
    return (field for field in fields if version in versions(field.get("versions") or field["taggedVersions"]))


def definitions(jars: Iterable[Path]) -> dict[str, Definition]:
    """Those of the messages that have a version left."""
    texts = []
    for jar in jars:
        with zipfile.ZipFile(jar) as archive:
            names = sorted(n for n in archive.namelist() if re.fullmatch(r"(common/)?(message|metadata)/\w+\.json", n))
            texts += [archive.read(name).decode() for name in names]
    found = [Definition(json.loads(_COMMENT.sub("", text))) for text in texts]
    return {definition.name: definition for definition in found if definition.versions}
