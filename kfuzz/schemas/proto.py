"""Protobuf values in Protobuf's own JSON form: protoc of grpcio-tools compiles a schema's text, protobuf decodes.

Imported on first use.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any, Final

from google.protobuf import descriptor_pb2, json_format
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from kfuzz.errors import UsageError
from kfuzz.schemas.plain import encode
from kfuzz.text import foreign_text
from kfuzz.wire.io.cursor import uvarint, uvarint_of

COMPILER: Final = "grpc_tools"
COMPILE_S: Final = 30
MAIN: Final = "kfuzz_main.proto"
MISSING: Final = ": File not found."
VARINT_BYTES_MAX: Final = 5
NAME_TAG: Final = 1 << 3 | 2
NESTED_MAX: Final = 100
REASON_BYTES_MAX: Final = 300
GOOGLES: Final = "google.protobuf"
# Confluent's registry knows these files itself, so it lists them among no schema's references.
BUILT_IN: Final = {
    "confluent/meta.proto": """
        syntax = "proto3";
        package confluent;
        import "google/protobuf/descriptor.proto";
        message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }
        extend google.protobuf.FileOptions { Meta file_meta = 1088; }
        extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
        extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
        extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
        extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
    """,
    "confluent/type/decimal.proto": """
        syntax = "proto3";
        package confluent.type;
        message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
    """,
}
FORM: Final = {"preserving_proto_field_name": True, "always_print_fields_with_no_presence": True}


def decoder(text: str, references: Iterable[tuple[str, str]], name: str) -> Callable[..., bytes]:
    """As for Avro. ``references`` has the name and the text of each file that ``text`` or another reference imports.

    Message indexes before the value say which message it is, by the places of its declarations. The function's third
    argument has them instead if they are elsewhere. Apicurio's serializer writes the name of a message in their place.
    """
    references = tuple(references)
    file, pool = _compiled(text, references, name)
    package = file.package and f"{file.package}."

    @cache
    def class_of(first: int, *inner: int) -> Any:
        found = pool.FindMessageTypeByName(package + file.message_type[first].name)
        for index in inner:
            found = found.nested_types[index]
        return GetMessageClass(found)

    # Protobuf's own types may have maps too.
    has_maps = any(word in one for _, one in (*references, ("", text)) for word in ("map", "google/protobuf/"))
    by_name = {one.name.encode(): number for number, one in enumerate(file.message_type)}

    def decode(data: bytes, at: int, indexes: bytes = b"") -> bytes:
        if (found := _named(data, at, by_name)) is None:
            found = (_indexes(indexes, 0)[0], at) if indexes else _indexes(data, at)
        chosen, at = found
        message = class_of(*chosen).FromString(data[at:])
        made = json_format.MessageToDict(message, **FORM, descriptor_pool=pool)
        return encode(_in_order(made, message.DESCRIPTOR) if has_maps else made)

    return decode


def _in_order(value: Any, descriptor: Any) -> Any:
    """The JSON of a message, or of something inside one if ``descriptor`` is None, with the entries of maps sorted.
    They come in an order that differs from process to process.
    """
    if isinstance(value, list):
        return [_in_order(one, descriptor) for one in value]
    if not isinstance(value, dict):
        return value
    fields = None if descriptor is None or descriptor.full_name.startswith(GOOGLES) else descriptor.fields_by_name
    if fields is None:
        return {key: _in_order(value[key], None) for key in sorted(value)}
    for name, one in value.items():
        inner = fields[name].message_type if name in fields else None
        if inner is not None and inner.GetOptions().map_entry:
            entry = inner.fields_by_name["value"].message_type
            value[name] = {key: _in_order(one[key], entry) for key in sorted(one)}
        elif inner is not None:
            value[name] = _in_order(one, inner)
    return value


def chosen(text: str, references: Iterable[tuple[str, str]], name: str, message: str | None) -> tuple[Any, bytes]:
    """The descriptor of a message, by default the first, and its message indexes as Confluent's serializer writes them.

    A message inside another one is named by both, with a point between them. ``UsageError`` as for a decoder.
    """
    file, pool = _compiled(text, tuple(references), name)
    wanted = message.removeprefix(f"{file.package}.") if message else ""
    inner, path = file.message_type, []
    for part in wanted.split("."):
        at = next((at for at, one in enumerate(inner) if part in ("", one.name)), -1)
        if at < 0:
            raise UsageError(f"{name} has no message {message or 'at all'}; name one of its own")
        path.append((at, inner[at].name))
        inner = inner[at].nested_type
    found = pool.FindMessageTypeByName(".".join(filter(None, (file.package, *(one for _, one in path)))))
    numbers = [at for at, _ in path]
    data = b"" if numbers == [0] else uvarint(2 * len(numbers))
    return found, data + b"".join(uvarint(2 * at) for at in numbers)


@lru_cache(maxsize=16)
def _compiled(text: str, references: tuple[tuple[str, str], ...], name: str) -> tuple[Any, DescriptorPool]:
    """The descriptor of the file, and a pool with all that it needs."""
    if find_spec(COMPILER) is None:
        raise UsageError("Protobuf schemas need grpcio-tools; pip install 'kfuzz[schemas]'")
    with tempfile.TemporaryDirectory(prefix="kfuzz-proto-") as folder:
        for path, one in (*BUILT_IN.items(), *references, (MAIN, text)):
            if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts or not path.strip("./"):
                raise UsageError(f"{name} imports {path!r}, which leads out of its folder; correct the name")
            target = Path(folder, "in", path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(one, "utf-8")
        made = Path(folder, "out")
        # As a process of its own: it prints errors itself, and a strange text may take long.
        command = [sys.executable, "-m", f"{COMPILER}.protoc", "-I.", "--include_imports"]
        try:
            command += [f"--descriptor_set_out={made}", MAIN]
            run = subprocess.run(command, cwd=f"{folder}/in", capture_output=True, timeout=COMPILE_S)
        except subprocess.TimeoutExpired:
            raise UsageError(f"{name} is not compiled by protoc in {COMPILE_S} seconds; make it smaller") from None
        if run.returncode or not made.is_file():
            lines = run.stderr.decode(errors="replace").replace(MAIN, name).splitlines()
            if missing := next((line.removesuffix(MISSING) for line in lines if line.endswith(MISSING)), ""):
                missing = foreign_text(missing, bytes_max=REASON_BYTES_MAX)
                raise UsageError(f"{name} imports {missing}, which is not among the schemas that it refers to")
            wrong = (line for line in lines if re.match(r"[^ ][^:]*:(\d+:\d+:)? (?!warning|All log)", line))
            raise UsageError(
                f"{name} is not a Protobuf schema: {foreign_text('; '.join(wrong), bytes_max=REASON_BYTES_MAX)}"
            )
        files = descriptor_pb2.FileDescriptorSet.FromString(made.read_bytes()).file
    pool = DescriptorPool()
    for file in files:
        pool.Add(file)
    return files[-1], pool


def _named(data: bytes, at: int, by_name: Mapping[bytes, int]) -> tuple[tuple[int, ...], int] | None:
    """The index of the message that a name before the value says, and where the value begins; None without a name.

    It is a message itself, after its length, with the name as its field 1.
    """
    length, *field = data[at : at + 3].ljust(3, b"\0")
    end = at + 1 + length
    number = by_name.get(data[at + 3 : end]) if field == [NAME_TAG, length - 2] else None
    return None if number is None else ((number,), end)


def _indexes(data: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """The message indexes at a byte, and where they end. A single 0 stands for the first message."""
    numbers: list[int] = []
    left = 1
    while left:
        raw, size = uvarint_of(data[at : at + VARINT_BYTES_MAX], VARINT_BYTES_MAX)
        number = raw >> 1 ^ -(raw & 1)
        if size <= 0 or not 0 <= number < 1 << 16 or (not numbers and number > NESTED_MAX):
            raise ValueError("its message indexes are damaged")
        left = number if not numbers else left - 1
        numbers.append(number)
        at += size
    return tuple(numbers[1:]) or (0,), at
