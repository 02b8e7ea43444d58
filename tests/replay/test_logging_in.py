"""Clients log in by each mechanism of SASL, and show a certificate."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from certificates import certificate
from replay.fake_broker import FakeBroker
from scramp import ScramMechanism

from kfuzz.client.sasl import dialogue
from kfuzz.corpora.workload import parse
from kfuzz.errors import UsageError
from kfuzz.replay import Address, Load, Security, Settings, run_load


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_proves_the_password_to_both_sides(mechanism: str) -> None:
    known = ScramMechanism(mechanism)
    for password, iterations in (("right", 4096), ("wrong", 4096), ("right", 100_000_000)):
        talk = dialogue(mechanism, "me", password)
        salt, stored, server_key, _ = known.make_auth_info("right", iteration_count=4096)
        server = known.make_server(lambda user, made=(salt, stored, server_key, 4096): made)  # type: ignore[misc]
        server.set_client_first(next(talk).decode())
        first = server.get_server_first().replace("i=4096", f"i={iterations}").encode()
        if iterations > 4096:
            with pytest.raises(UsageError, match="rounds of hashing"):
                talk.send(first)
            continue
        proof = talk.send(first).decode()
        if password == "wrong":
            with pytest.raises(Exception, match=r"do not match|don't match"):
                server.set_client_final(proof)
            continue
        server.set_client_final(proof)
        with pytest.raises(StopIteration):
            talk.send(server.get_server_final().encode())


def test_a_token_is_sent_and_the_answer_that_refuses_it_is_taken() -> None:
    talk = dialogue("OAUTHBEARER", "me", "token")
    assert next(talk) == b"n,,\x01auth=Bearer token\x01\x01"
    assert talk.send(b'{"status":"invalid_token"}') == b"\x01"


def test_a_client_shows_its_certificate(tmp_path: Path) -> None:
    made = certificate(tmp_path)
    context = made.context()
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(made.cert)
    workload = parse('[[topics]]\nname = "t"', "w")
    with FakeBroker({"t": 1}, context=context) as broker:
        for shown in (str(made.cert), None):
            security = Security(tls=True, ca=str(made.cert), certificate=shown, key=shown and str(made.key))
            settings = Settings(Address("127.0.0.1", broker.port), security, records=100, timeout_ms=5000)
            if shown:
                assert run_load(Load(workload), settings).sent.records == 100
            else:
                with pytest.raises(UsageError, match="is a broker running there"):
                    run_load(Load(workload), settings)
