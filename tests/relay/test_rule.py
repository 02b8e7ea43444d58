"""One rule: how people write it, what is refused, and which frames it matches."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from cli.cli_driver import kfuzz
from relay.framing import exchange

from kfuzz.errors import UsageError
from kfuzz.forms import Wrong
from kfuzz.relay.frames import api_names
from kfuzz.relay.rule import RULE, Rule, load_rules, parse_rule

PAGE = Path(__file__).resolve().parents[2] / "docs" / "proxy.md"
MESSAGE = "messages/claims/api-versions-response-v2-apikeys-as-many-as-bytes"

TEXTS: list[tuple[str, dict[str, Any]]] = [
    ("endTXN error=48 times=1", {"api": "EndTxn", "error": 48, "times": 1}),
    ("* delay_ms=5 client_id=12", {"api": "*", "delay_ms": 5, "client_id": "12"}),
    ("Fetch set=responses[0].partitions[*].highWatermark=5 set=errorCode=UNKNOWN_TOPIC_ID",
     {"api": "Fetch", "set": {"responses[0].partitions[*].highWatermark": 5, "errorCode": "UNKNOWN_TOPIC_ID"}}),
    ('FindCoordinator answer={"errorMessage": "a b"} versions=1-3',
     {"api": "FindCoordinator", "direction": "request", "answer": {"errorMessage": "a b"}, "versions": "1-3"}),
    ("Fetch drop nth='every 10'", {"api": "Fetch", "drop": True, "nth": "every 10"}),
    ("Fetch cut=5 nth=3-5 versions=4", {"api": "Fetch", "cut": 5, "nth": "3-5", "versions": "4"}),
    ("Fetch hex=00 probability=0.5", {"api": "Fetch", "hex": "00", "probability": 0.5}),
    (f"ApiVersions vector={MESSAGE}", {"api": "ApiVersions", "vector": MESSAGE}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "document"), TEXTS)
def test_text_and_json_are_one_form(text: str, document: dict[str, Any]) -> None:
    whole = {"direction": "response", **document}
    rule = parse_rule(text)
    assert rule.to_json() == Rule(document).to_json() == parse_rule(str(rule)).to_json() == whole


def test_python_programs_may_give_bytes() -> None:
    assert Rule({"api": "Fetch", "bytes": b"\1\2"}).to_json()["hex"] == "0102"
    with pytest.raises(UsageError, match=r"set is .* give a table such as"):
        Rule({"api": "Fetch", "set": {1: 2}})


# These are too long for a file.
LONG = {
    f"EndTxn answer={'[' * 200}{']' * 200}": "nested deeper than 100 levels",
    f"EndTxn answer={'[' * 90_000}": "the value of answer is no JSON",
    f"Fetch vector={MESSAGE}": "vector is ApiVersionsResponse 2, which the rule does not match",
    f"ApiVersions vector={MESSAGE} versions=3": "vector is ApiVersionsResponse 2, which the rule does not match",
}
WRONG: dict[str, str] = tomllib.loads(Path(__file__).with_name("wrong_rules.toml").read_text()) | LONG


@pytest.mark.parametrize(("text", "sentence"), WRONG.items())
def test_a_wrong_rule_gets_one_sentence_that_says_what_to_do(text: str, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_rule(text)
    said = str(caught.value)
    assert sentence in said
    assert said.startswith("rule '")
    assert "\n" not in said[:1000] == said


def test_every_api_takes_rules_at_all_of_its_versions() -> None:
    for api in api_names():
        assert parse_rule(f"{api} mutate").api == api
        # Every request has an answer of defaults.
        assert parse_rule(f"{api} answer={{}}").replies


def test_the_command_says_what_is_wrong_with_a_rule() -> None:
    said = kfuzz("proxy", "0", "127.0.0.1:1", "--rule", "Fecth drop", code=2).stderr
    assert said.endswith('api is "Fecth", which is no API; did you mean Fetch?\n')


def test_a_file_has_a_seed_and_rules(tmp_path: Path) -> None:
    rules = """
        seed = 7
        [[rule]]
        api = "Fetch"
        drop = true
        nth = "every 10"
        [[rule]]
        api = "Produce"
        direction = "request"
        [rule.set]
        "acks" = -1
    """
    (tmp_path / "r.toml").write_text(rules)
    (tmp_path / "r.json").write_text('{"rule": [{"api": "fetch", "drop": true}]}')
    seed, made = load_rules(tmp_path / "r.toml")
    assert (seed, *map(str, made)) == (7, 'Fetch drop nth="every 10"', "Produce set=acks=-1 direction=request")
    seed, made = load_rules(tmp_path / "r.json")
    assert (seed, *map(str, made)) == (None, "Fetch drop")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "lacks rule; give at least one [[rule]]"),
        ("rule = 5", ": rule is 5; give at least one [[rule]]"),
        ("[[rule]]\napi = 'Fetch'\ndorp = true", ": rule[0].dorp is not a key that kfuzz knows; did you mean drop?"),
        ("[[rule]]\napi = 'Fetch'\ndrop = true\n[[rule]]\napi = 'Fecth'\ndrop = true", ': rule[1]: api is "Fecth"'),
        ("seed = -1\n[[rule]]\napi = 'Fetch'\ndrop = true", ": seed is -1"),
        ("seed =", " is not TOML: "),
    ],
)
def test_a_wrong_file_gets_one_sentence_with_the_place(text: str, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "r.toml"
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        load_rules(file)
    assert str(caught.value).startswith(f"{file}")
    assert sentence in str(caught.value)


def test_conditions_say_which_frames_match() -> None:
    rule = parse_rule("Fetch drop versions=4-10 client_id=app-* connection=2")
    wanted: dict[str, Any] = {"version": 10, "connection": 2, "client_id": "app-1"}
    assert rule.matches(exchange("Fetch", **wanted))
    for other in ({"version": 11}, {"connection": 1}, {"client_id": "apps"}, {"client_id": None}):
        assert not rule.matches(exchange("Fetch", **wanted | other)), other
    assert parse_rule("Fetch drop client_id=*").matches(exchange("Fetch", 10, client_id=None))


@pytest.mark.parametrize(
    ("nth", "taken"),
    [("3", [3]), ('"3"', [3]), ("3-5", [3, 4, 5]), ('"every 4"', [4, 8]), ('"every 1"', [*range(1, 10)])],
)
def test_nth_says_which_of_the_matching_frames_are_meant(nth: str, taken: list[int]) -> None:
    rule = parse_rule(f"Fetch drop nth={nth}")
    assert [number for number in range(1, 10) if rule.takes(number)] == taken


def test_random_decisions_depend_on_what_the_documentation_says_and_on_nothing_else() -> None:
    def draws(rule: str = "Fetch mutate", seed: int = 1, api: str = "Fetch", version: int = 9, **more: Any) -> bytes:
        return parse_rule(rule).dice(seed, exchange(api, version, **more)).octets(8)

    first = draws()
    # The version, the client and how often the rule may be applied do not matter.
    assert draws() == draws("Fetch mutate times=3", version=4, client_id="other") == first
    others = [
        draws(seed=2),
        draws(nth=2),
        draws(connection=2),
        draws(connection=11, nth=1),
        draws(connection=1, nth=11),
        draws("Fetch mutate direction=request"),
        draws("Fetch drop"),
        draws(api="Produce"),
    ]
    assert len({first, *others}) == 9


def test_the_form_is_a_json_schema_too() -> None:
    assert RULE.schema["required"] == ["api"]
    with pytest.raises(Wrong, match="lacks api"):
        RULE.check({"drop": True})


def test_the_page_has_every_condition_and_action_and_its_example_is_right(tmp_path: Path) -> None:
    page = PAGE.read_text()
    section = page.split("## Rules")[1].split("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == set(RULE.keys)
    [example] = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "r.toml").write_text(example)
    assert len(load_rules(tmp_path / "r.toml")[1]) == 3
