"""The differences between expected records and those of an answer, in words. Causes are grouped by these words."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kfuzz.conformance.protocol.lines import Handshake

Json = Mapping[str, Any]


class Wrong(NamedTuple):
    """The fault of an answer, its class of harm, and the outcome that it is."""

    text: str
    harm: str
    outcome: str = "fail"


def because(error: str) -> str:
    return f": {error}" if error else ""


def batches_differ(expected: Sequence[Json], got: Sequence[Json], shows: Handshake | None = None) -> str | None:
    """The first difference. ``shows`` declares which headers and timestamps the testee can show; None: all."""
    for index, (want, have) in enumerate(zip(expected, got, strict=False)):
        for name, value in have.items():
            if name != "records" and name in want and value != want[name]:
                return f"batch[{index}].{name} is {shown(value)}; expected {shown(want[name])}"
        # A broker may store a batch that no reader can read; such a batch is reported without records.
        if ("records" in want) != ("records" in have):
            read = "cannot be read back" if "records" in want else "was read back, which must be impossible"
            return f"batch[{index}] {read}"
        if "records" in want:
            wrong = records_differ(want["records"], have["records"], f"batch[{index}].", shows)
            if wrong:
                return wrong
    return None if len(expected) == len(got) else f"read {amount(got, expected, 'batches')}"


def records_differ(
    expected: Sequence[Json], got: Sequence[Json], where: str, shows: Handshake | None = None
) -> str | None:
    # The usual and fastest case. The rest is for values that can be written in more than one way.
    if expected == got:
        return None
    for index, (want, have) in enumerate(zip(expected, got, strict=False)):
        place = f"{where}records[{index}]"
        if want["offset"] != have["offset"]:
            return f"{place}.offset is {shown(have['offset'])}; expected {shown(want['offset'])}"
        if not _same_timestamp(want["timestamp"], have["timestamp"], shows):
            return f"{place}.timestamp is {shown(have['timestamp'])}; expected {shown(want['timestamp'])}"
        for name in ("key", "value"):
            if not _same_octets(want[name], have[name]):
                return f"{place}.{name} is {shown(have[name])}; expected {shown(want[name])}"
        wanted_headers, headers = want["headers"], have["headers"]
        if shows is not None and shows.headers == "map":
            wanted_headers, headers = sorted(wanted_headers, key=str), sorted(headers, key=str)
        if wrong := _headers_differ(wanted_headers, headers, place):
            return wrong
    if len(expected) != len(got):
        return f"{where and where[:-1] + ' has '}{amount(got, expected, 'records')}"
    return None


def _same_timestamp(want: str | None, have: str | None, shows: Handshake | None) -> bool:
    """Whether both are the same within the range and resolution that the testee declares."""
    if want == have:
        return True
    if shows is None or shows.timestamps is None or want is None:
        return False
    low, high = int(shows.timestamps["low"]), int(shows.timestamps["high"])
    if not low <= int(want) <= high:
        return True
    return have is not None and abs(int(want) - int(have)) < int(shows.timestamps["resolution_ms"])


def _headers_differ(expected: Sequence[Any], got: Sequence[Any], place: str) -> str | None:
    if len(expected) != len(got):
        return f"{place} has {amount(got, expected, 'headers')}"
    for index, ((want_key, want), (have_key, have)) in enumerate(zip(expected, got, strict=True)):
        if not _same_header_key(want_key, have_key):
            return f"{place}.headers[{index}].key is {shown(have_key)}; expected {shown(want_key)}"
        if not _same_octets(want, have):
            return f"{place}.headers[{index}].value is {shown(have)}; expected {shown(want)}"
    return None


def _same_octets(want: Any, have: Any) -> bool:
    """Whether two values are equal; each may be hex, null, or a hash."""
    if want is None or have is None or type(want) is type(have):
        return bool(want == have)
    return _hashed(want) == _hashed(have)


def _hashed(octets: Any) -> Json:
    if isinstance(octets, str):
        data = bytes.fromhex(octets)
        return {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
    hashed: Json = octets
    return hashed


def _same_header_key(want: Any, have: Any) -> bool:
    """Whether two keys are equal. A key that is not UTF-8 may be read as text with U+FFFD in place of the bad bytes.

    Languages write different numbers of U+FFFD for a run of bad bytes, so a run of U+FFFD counts as one.
    """
    if want == have:
        return True
    want_bytes, have_bytes = _key_bytes(want), _key_bytes(have)
    if want_bytes == have_bytes:
        return True
    return isinstance(want, dict) and isinstance(have, str) and _collapsed(want_bytes) == _collapsed(have_bytes)


def _key_bytes(key: Any) -> bytes:
    return key.encode("utf-8", "surrogatepass") if isinstance(key, str) else bytes.fromhex(key["hex"])


def _collapsed(data: bytes) -> str:
    return re.sub("\ufffd+", "\ufffd", data.decode("utf-8", "replace"))


def amount(got: Sequence[Any], expected: Sequence[Any], what: str) -> str:
    """Say in words which way the numbers differ, because causes are grouped by the text without its numbers."""
    return f"too {'few' if len(got) < len(expected) else 'many'} {what}: {len(got)}; expected {len(expected)}"


def shown(value: Any, width: int = 48) -> str:
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value) or "empty"
    return text if len(text) <= width else f"{text[:width]}…"
