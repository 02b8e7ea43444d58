"""One rule: which frames it matches, and what it does to them (docs/proxy.md, Rules). It is checked when it is made.

Its random decisions depend only on the seed, on the connection's number, the direction, the API, the number of the
frame among those of its API there, and on the rule itself.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from kfuzz.documents import DEPTH_MAX, TOML_BYTES_MAX, check_depth, load_json, load_toml
from kfuzz.errors import UsageError
from kfuzz.files import read_small
from kfuzz.forms import HEX, Form, ListOf, Object, Wrong, choice, integer, number, shown
from kfuzz.kafka import INT32_MAX, INT64_MAX
from kfuzz.messages import parse_versions
from kfuzz.messages.model import ALL, Versions
from kfuzz.mutate.dice import Dice
from kfuzz.relay import changes
from kfuzz.relay.changes import THROTTLE, Change
from kfuzz.relay.frames import Api, Direction, Exchange, api_key, api_names, api_of, versions_of
from kfuzz.relay.frames import Form as FrameForm
from kfuzz.relay.pipe import FRAME_BYTES_MAX
from kfuzz.text import foreign_text
from kfuzz.vectors import find_vector

SEED: Final = 1
SEED_MAX: Final = INT64_MAX
ANY: Final = "*"
DELAY_MS_MAX: Final = 3_600_000
NAME_CHARACTERS_MAX: Final = 250
RULE_CHARACTERS_MAX: Final = 100_000

_NTH: Final = re.compile(r"(every )?([1-9]\d{0,9})(?:-([1-9]\d{0,9}))?", re.ASCII)

_ERROR: Final = re.compile(r"[A-Za-z]\w{0,99}", re.ASCII)
# The name of a condition or an action; for `set`, also the path of a field. Then the end of a value without quotes.
_KEY: Final = re.compile(r"\s*(set=[^\s={]+|[^\s=]+)(=?)")
_PLAIN: Final = re.compile(r"'[^']*'|\S*")


def _nth(value: Any) -> range | None:
    """The numbers that ``nth = value`` chooses, such as 3, "2-5" or "every 3"; None for any other value."""
    match = _NTH.fullmatch(str(value)) if type(value) in (int, str) else None
    if match is None or (match[1] and match[3]):
        return None
    first = int(match[2])
    return range(first, SEED_MAX + 1, first) if match[1] else range(first, int(match[3] or first) + 1) or None


def _versions(value: Any) -> Versions | None:
    try:
        return parse_versions(str(value)) if type(value) in (int, str) else None
    except ValueError:
        return None


_SHORT: Final = Form(
    {"type": "string", "minLength": 1, "maxLength": NAME_CHARACTERS_MAX},
    f"give a text of 1 to {NAME_CHARACTERS_MAX} characters",
    lambda value: isinstance(value, str) and 0 < len(value) <= NAME_CHARACTERS_MAX,
)
_TRUE: Final = Form({"const": True}, "give true, or leave it out", lambda value: value is True)
_TABLE: Final = Form({"type": "object"}, "give a table of values by their names", lambda value: type(value) is dict)
_PATHS: Final = Form(
    {"type": "object", "minProperties": 1},
    'give a table such as {"responses[*].partitions[*].highWatermark": 5}',
    lambda value: type(value) is dict and value and all(isinstance(path, str) for path in value),
)
_CONDITIONS: Final[dict[str, Form]] = {
    "api": _SHORT,
    "direction": choice("request", "response"),
    "versions": Form(
        {"type": ["integer", "string"]}, 'give a version or a range of them, such as "3-12" or "4+"', _versions
    ),
    "client_id": _SHORT,
    "connection": integer(1, INT32_MAX),
    "nth": Form(
        {"type": ["integer", "string"]}, 'give a number from 1 on, or a text such as "3-5" or "every 10"', _nth
    ),
    "probability": number(0, 1),
    "times": integer(1, INT32_MAX),
}
# Actions that change a frame, after which the next rule takes its turn; and those that decide what becomes of it.
_CHANGES: Final[dict[str, Form]] = {
    "error": Form(
        {"type": ["integer", "string"]},
        "give the name of one of Kafka's errors, or its number",
        lambda value: (
            (type(value) is int and -(1 << 15) <= value < 1 << 15) or (type(value) is str and _ERROR.fullmatch(value))
        ),
    ),
    "set": _PATHS,
    "vector": _SHORT,
    "hex": HEX,
    "throttle_ms": integer(0, INT32_MAX),
    "mutate": _TRUE,
}
ENDINGS: Final[dict[str, Form]] = {
    "answer": _TABLE,
    "cut": integer(0, FRAME_BYTES_MAX),
    "drop": _TRUE,
    "reorder": _TRUE,
    "disconnect": choice("before", "after"),
    "half_open": _TRUE,
}
DELAY: Final = "delay_ms"
# With ``hex``.
KEEP: Final = "keep_bytes"
_ACTIONS: Final = {**_CHANGES, "duplicate": _TRUE, **ENDINGS}
# Nothing is sent that could be late.
_NEVER_LATE: Final = ("drop", "reorder")
# These need the values of a message that has a name.
_OF_ONE_API: Final = ("set", "answer")
_ONLY: Final[dict[str, Direction]] = {"error": "response", "throttle_ms": "response", "answer": "request"}
RULE: Final = Object(
    {**_CONDITIONS, DELAY: integer(0, DELAY_MS_MAX), **_ACTIONS, KEEP: integer(0, FRAME_BYTES_MAX)},
    ("api",),
    'give a rule such as {"api": "Fetch", "error": "NOT_LEADER_OR_FOLLOWER"}',
)
FILE: Final = Object(
    {"seed": integer(0, SEED_MAX), "rule": ListOf(RULE, "give at least one [[rule]]", least=1)}, ("rule",)
)


class Rule:
    """One rule, checked. ``document`` is its JSON form; ``place`` names it in errors.

    Raises ``UsageError`` with the place and what to do.

    >>> from kfuzz.relay.rule import Rule
    >>> print(Rule({"api": "endtxn", "error": "INVALID_TXN_STATE", "times": 1}))
    EndTxn error=INVALID_TXN_STATE times=1
    """

    def __init__(self, document: Mapping[str, Any], place: str = "the rule") -> None:
        if not isinstance(document, Mapping):
            raise UsageError(f'{place} is {shown(document)}; give a table such as {{"api": "Fetch", "delay_ms": 500}}')
        given = dict(document)
        if isinstance(data := given.get("bytes"), bytes | bytearray):
            # For Python programs.
            del given["bytes"]
            given["hex"] = data.hex()
        try:
            RULE.check(given)
            self._make(given)
        except Wrong as wrong:
            raise _refused(wrong, place) from None

    def _make(self, given: dict[str, Any]) -> None:
        self.action = _action(given)
        self.api = _api(given["api"])
        self.direction = _direction(given, self.action)
        self.document = {**given, "api": self.api, "direction": self.direction}
        self.client_id: str | None = given.get("client_id")
        self.connection: int | None = given.get("connection")
        self.nth = _nth(given["nth"]) if "nth" in given else None
        self.probability: float = given.get("probability", 1)
        self.times: int | None = given.get("times")
        self.delay_ms: int = given.get(DELAY, 0)
        self.versions = _versions(given["versions"]) or ALL if "versions" in given else ALL
        self.change: Change | None = None
        self.replies: dict[int, bytes] = {}
        if self.action in _OF_ONE_API and self.api == ANY:
            raise Wrong("needs the fields of one API", "give the name of an API instead of *", f".{self.action}")
        apis = self._apis()
        try:
            self._make_action(given.get(self.action), apis)
        except Wrong as wrong:
            raise wrong.inside(f".{self.action}") from None
        text = json.dumps({key: given[key] for key in sorted(given) if key not in ("times", "api")}, sort_keys=True)
        self._digest = f"{self.api} {text}".encode()

    def _apis(self) -> list[Api]:
        """The API in each of the rule's versions; none for *."""
        if self.api == ANY:
            return []
        key = api_key(self.api)
        known = versions_of(key) or ALL
        if not known & self.versions:
            raise Wrong(f"is {self.versions}", f"{self.api} has the versions {known}", ".versions")
        found = (api_of(key, version) for version in known & self.versions)
        return [one for one in found if one is not None]

    def _make_action(self, value: Any, apis: Sequence[Api]) -> None:
        forms = [one.form(self.direction) for one in apis]
        name = forms[-1].definition.name if forms else ""
        if self.action == "error":
            self.change = changes.error_change(changes.error_code(value))
            if forms and not any(map(changes.has_errors, forms)):
                raise Wrong(f"needs an error to change, and {name} has none", "take another action, such as drop")
        elif self.action == "set":
            self.change = changes.set_change(forms, value)
        elif self.action == "throttle_ms":
            self.change = changes.throttle_change(value)
            if forms and not any(changes.has_field(one, THROTTLE) for one in forms):
                raise Wrong(f"needs {THROTTLE}, and {name} has none", "take delay_ms")
        elif self.action == "hex":
            self.change = changes.body_change(bytes.fromhex(value), self.document.get(KEEP, 0))
        elif self.action == "vector":
            self._take_vector(value, forms)
        elif self.action == "mutate":
            self.change = changes.mutated
        elif self.action == "answer":
            self.replies = changes.replies_of([one.response for one in apis], value)

    def _take_vector(self, name: str, forms: Sequence[FrameForm]) -> None:
        try:
            vector = find_vector(name)
        except UsageError as error:
            raise Wrong("names no vector", str(error)) from None
        if vector.kind == "message":
            message, version = vector.options["message"], vector.options["version"]
            if message != f"{self.api}{self.direction.capitalize()}" or version not in self.versions:
                raise Wrong(
                    f"is {message} {version}, which the rule does not match",
                    "give the api, the direction and a version of the vector",
                )
            self.versions = Versions(version, version)
            body = vector.data
            self.change = lambda frame, dice: frame.with_body(body)
        elif vector.kind == "records":
            if forms and not any(form.has_records for form in forms):
                raise Wrong(
                    f"has record batches, and {forms[-1].definition.name} has none",
                    "take requests of Produce, or responses of Fetch",
                )
            self.change = changes.records_change(vector.data)
        else:
            raise Wrong(f"is a vector of kind {vector.kind}", "take one of kind records or message")

    def may_match(self, exchange: Exchange) -> bool:
        """Whether a frame can match, by what is known when it begins."""
        return exchange.version in self.versions and self.connection in (None, exchange.connection)

    def matches(self, exchange: Exchange) -> bool:
        """Whether a frame of the rule's API and direction matches, but for its number and the probability."""
        return self.may_match(exchange) and (
            self.client_id is None or fnmatchcase(exchange.client_id or "", self.client_id)
        )

    def takes(self, number: int) -> bool:
        """Whether the rule takes the frame of this number among those that match."""
        return self.nth is None or number in self.nth

    def dice(self, seed: int, exchange: Exchange) -> Dice:
        """The random numbers for a frame."""
        where = f"{seed} {exchange.connection} {self.direction} {exchange.name} {exchange.nth} ".encode()
        digest = hashlib.blake2b(where + self._digest, digest_size=16).digest()
        return Dice(int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:], "big"))

    def answer(self, exchange: Exchange) -> bytes | None:
        """The response with which the proxy answers a request, without its size; None if its version has no such."""
        body = self.replies.get(exchange.version)
        if body is None or exchange.api is None:
            return None
        return exchange.api.response.head(exchange.correlation_id) + body

    def to_json(self) -> dict[str, Any]:
        return dict(self.document)

    def __str__(self) -> str:
        default = "request" if self.action == "answer" else "response"
        left_out = ("api", "direction") if self.direction == default else ("api",)
        given = {key: value for key, value in self.document.items() if key not in left_out}
        fields = {f"set={path}": value for path, value in given.pop("set", {}).items()}
        return " ".join((self.api, *(_word(*one) for one in (fields | given).items())))


def _refused(wrong: Wrong, root: str) -> UsageError:
    wrong.place = wrong.place.replace(".", ": ", 1)
    return UsageError(foreign_text(wrong.sentence(root)))


def _word(key: str, value: Any) -> str:
    """A condition or an action as :func:`parse_rule` takes it."""
    if value is True:
        return key
    is_plain = isinstance(value, str) and key in RULE.keys and re.fullmatch(r"[\w.*/+-]+", value)
    return f"{key}={value if is_plain else json.dumps(value)}"


def _action(given: Mapping[str, Any]) -> str:
    named = [one for one in given if one in _ACTIONS]
    if len(named) > 1:
        raise Wrong(f"has the actions {' and '.join(named)}", "make a rule for each of them")
    if not named and DELAY not in given:
        raise Wrong("has no action", f"give one of {', '.join((*_ACTIONS, DELAY))}")
    action = named[0] if named else DELAY
    if KEEP in given and action != "hex":
        raise Wrong(f"does nothing with {action}", "leave it out, or give hex", f".{KEEP}")
    if action in _NEVER_LATE and DELAY in given:
        raise Wrong(f"does nothing with {action}", "leave one of them out", f".{DELAY}")
    return action


def _api(name: str) -> str:
    by_case = {one.lower(): one for one in api_names()}
    found = ANY if name == ANY else by_case.get(name.lower())
    if found is None:
        short = name.lower().removesuffix("request").removesuffix("response")
        near = get_close_matches(short, by_case, n=1, cutoff=0.6)
        remedy = f"did you mean {by_case[near[0]]}?" if near else "give the name of an API such as Fetch, or * for all"
        raise Wrong(f"is {shown(name)}, which is no API", remedy, ".api")
    return found


def _direction(given: Mapping[str, Any], action: str) -> Direction:
    only = _ONLY.get(action)
    direction: Direction = given.get("direction", only or "response")
    if only and direction != only:
        raise Wrong(f"is {direction}", f"{action} needs the direction {only}", ".direction")
    return direction


# --- how people write rules -----------------------------------------------------------------------------------------


def parse_rule(text: str) -> Rule:
    """A rule from text: an API's name, then ``name=value``, or a name alone for true. ``UsageError`` for a wrong one.

    Values are JSON, or text without spaces. ``set`` is ``set=PATH=VALUE``, as often as needed.

    >>> from kfuzz.relay.rule import parse_rule
    >>> parse_rule('Fetch set=responses[*].partitions[*].highWatermark=5 nth="every 10"').document["nth"]
    'every 10'
    """
    place = f"rule {foreign_text(text, bytes_max=100)!r}"
    if len(text) > RULE_CHARACTERS_MAX or not text.strip():
        raise UsageError(f'{place} is no rule; give one such as "EndTxn error=INVALID_TXN_STATE times=1"')
    api, _, rest = text.strip().partition(" ")
    document: dict[str, Any] = {"api": api}
    for key, value in _pairs(rest, place):
        name, dot, path = key.partition("=")
        held = document.setdefault(name, {}) if dot else document
        if (path or key) in held:
            raise UsageError(f"{place} has {foreign_text(key)} twice; leave one out")
        held[path or key] = value
    return Rule(document, place)


def _pairs(text: str, place: str) -> Iterator[tuple[str, Any]]:
    """The names in a text and their values."""
    at = 0
    while match := _KEY.match(text, at):
        key, at, value = match[1], match.end(), True
        if match[2] and text[at : at + 1] in ("{", "[", '"'):
            try:
                value, at = json.JSONDecoder().raw_decode(text, at)
            except (ValueError, RecursionError):
                raise UsageError(f"{place}: the value of {foreign_text(key)} is no JSON; correct it") from None
            check_depth(value, place, remedy="correct it", depth_max=DEPTH_MAX)
        elif match[2] and (found := _PLAIN.match(text, at)):
            at = found.end()
            value = _plain(found[0], RULE.keys.get(key))
        yield key, value
    if text[at:].strip():
        raise UsageError(
            f"{place} has {foreign_text(text[at:].strip(), bytes_max=100)!r} without a name; give NAME=VALUE"
        )


def _plain(text: str, form: Form | None) -> Any:
    """The value of a text: itself if its form takes it, otherwise as JSON if it is any."""
    if text.startswith("'"):
        return text[1:-1]
    if form is not None and form.fits(text):
        return text
    try:
        return load_json(text, "the value", bytes_max=RULE_CHARACTERS_MAX)
    except UsageError:
        return text


def load_rules(path: str | Path) -> tuple[int | None, list[Rule]]:
    """The seed, if one is given, and the rules of a file: TOML, or JSON if its name ends so.

    ``UsageError`` if it cannot be read or a rule is wrong.
    """
    path, name = Path(path), str(path)
    data = read_small(path, bytes_max=TOML_BYTES_MAX, follow=True)
    document = load_json(data, name) if path.suffix == ".json" else load_toml(data, name)
    try:
        FILE.check(document)
    except Wrong as wrong:
        raise _refused(wrong, name) from None
    return document.get("seed"), [Rule(one, f"{name}: rule[{at}]") for at, one in enumerate(document["rule"])]
