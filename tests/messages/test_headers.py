"""Headers: the rule and its two exceptions, and a comparison with Kafka for every version of every API."""

from __future__ import annotations

import pytest
from conftest import releases
from release_counts import COUNTS
from testee_driver import running

from kfuzz.errors import UsageError
from kfuzz.kafka import KAFKA_3
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.headers import request_header_version, response_header_version
from kfuzz.messages.model import LAST_VERSION


def test_a_flexible_version_has_a_flexible_header_but_for_two_apis() -> None:
    known = catalogue(KAFKA_3)
    for request in known.messages.values():
        if request.kind == "request":
            api = request.name.removesuffix("Request")
            for version in (*(request.valid_versions or ()), LAST_VERSION):
                is_flexible = version in request.flexible_versions
                expected = 0 if (api, version) == ("ControlledShutdown", 0) else 1 + is_flexible
                assert request_header_version(request, version) == expected, (api, version)
                answer = response_header_version(known.find(f"{api}Response"), version)
                assert answer == (is_flexible and api != "ApiVersions"), (api, version)


def test_only_requests_and_responses_have_headers() -> None:
    with pytest.raises(UsageError, match="FetchResponse is a response; take the definition of a request"):
        request_header_version(catalogue().find("FetchResponse"), 12)
    with pytest.raises(UsageError, match="RequestHeader is a header; take the definition of a response"):
        response_header_version(catalogue().find("RequestHeader"), 1)


@pytest.mark.java
@pytest.mark.parametrize("release", releases())
def test_kafka_says_the_same_of_every_version_of_every_api(release: str) -> None:
    known = catalogue(release)
    asked = 0
    with running("kafka-clients", release) as kafka:
        for request in known.messages.values():
            if request.kind == "request" and request.valid_versions:
                response = known.find(request.name.removesuffix("Request") + "Response")
                for version in (*request.valid_versions, LAST_VERSION):
                    said = kafka.ask(operation="header-versions", api_key=request.api_key, version=version)
                    assert (said.get("request"), said.get("response")) == (
                        request_header_version(request, version),
                        response_header_version(response, version),
                    ), (request.name, version, said)
                    asked += 1
    assert asked == COUNTS[release]["headers"]
