"""Loads of a real broker that is stopped, or killed and started again: honest latencies, and nothing lost."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from kfuzz.client.link import Link
from kfuzz.client.sasl import MECHANISMS, OAUTHBEARER
from kfuzz.conformance.broker.real import Broker, _free_ports
from kfuzz.corpora.workload import parse
from kfuzz.errors import UsageError
from kfuzz.replay import Address, Load, Rate, Report, Security, Settings, run_load

pytestmark = [pytest.mark.java, pytest.mark.full]

# A broker alone has no others for the replicas of its own topics.
ALONE = {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}
WORKLOAD = """
[[topics]]
name = "orders"
partitions = 4
batches.records = 20
transactions = { share = 0.3, records = 100, abort_share = 0.3 }
"""


def loaded(broker: Broker, trouble: Callable[[], Any], seconds: float, **settings: Any) -> Report:
    """A load during which there is trouble after 2 s."""
    asked = Settings(
        Address("127.0.0.1", broker.port),
        create=True,
        restamp=True,
        retries=120,
        reconnects=10_000,
        rate=Rate(records_per_s=4000),
        duration_s=seconds,
        **settings,
    )
    timer = threading.Timer(2, trouble)
    timer.start()
    try:
        return run_load(Load(parse(WORKLOAD, "w")), asked)
    finally:
        timer.join()


def test_a_broker_that_does_nothing_for_a_quarter_of_the_time_shows_in_the_percentiles() -> None:
    with Broker(ALONE) as broker:
        assert broker._process is not None
        pid = broker._process.pid

        def stop() -> None:
            os.kill(pid, signal.SIGSTOP)
            threading.Timer(2.5, os.kill, (pid, signal.SIGCONT)).start()

        report = loaded(broker, stop, 10, verify=True)
    assert report.failure is None
    assert not any(level.faults() for level in report.levels.values())
    latency = report.topics["orders"].latency_ms()
    assert latency["p99"] > 2000
    assert latency["p90"] > 1000


@pytest.mark.nightly
@pytest.mark.parametrize("acks", [1, -1])
def test_a_broker_that_is_killed_and_started_again_loses_nothing_and_stores_nothing_twice(acks: Any) -> None:
    with Broker(ALONE) as broker:

        def kill() -> None:
            assert broker._process is not None
            broker._process.kill()
            broker._process.wait()
            broker.start()

        report = loaded(broker, kill, 20, check_history=True, acks=acks, transactional_id=f"acks{acks}")
    assert report.failure is None
    assert report.reconnects > 0
    faults = {fault for level in report.levels.values() for fault in level.faults()}
    # Without an idempotent producer, a batch whose answer was lost is sent twice.
    assert faults <= ({"twice"} if acks == 1 else set())
    assert report.levels["read_uncommitted again"].read >= report.sent.records


PAIR = {**ALONE, "transaction.state.log.replication.factor": "2"}


class _Second(Broker):
    """A broker that joins the cluster of another one, whose controller it has."""

    def __init__(self, first: Broker) -> None:
        super().__init__(PAIR)
        self._first = first

    def _format(self, port: int = 0) -> None:
        super()._format(port)
        of_first = self._first._properties.read_text()
        lines = dict(line.split("=", 1) for line in self._properties.read_text().splitlines())
        lines["controller.quorum.voters"] = of_first.split("controller.quorum.voters=")[1].split("\n")[0]
        listeners = f"PLAINTEXT://127.0.0.1:{self.port}"
        lines |= {"process.roles": "broker", "node.id": "2", "listeners": listeners}
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        meta = self.data / "meta.properties"
        own = [f"directory.id={_base64(bytes(range(16)))}", "node.id=2"]
        kept = [line for line in meta.read_text().splitlines() if not line.startswith(("directory.id=", "node.id="))]
        meta.write_text("\n".join([*kept, *own, ""]))


@pytest.mark.nightly
def test_a_load_goes_on_when_one_of_two_brokers_ends() -> None:
    with Broker(PAIR) as first, _Second(first) as second:

        def kill() -> None:
            assert second._process is not None
            second._process.kill()

        report = loaded(first, kill, 25, check_history=True, replication=2)
    assert report.failure is None
    assert report.reconnects > 0
    assert report.sent.records > 50_000
    assert not any(level.faults() for level in report.levels.values())
    assert report.levels["read_uncommitted again"].read >= report.sent.records


def _base64(words: bytes) -> str:
    return base64.urlsafe_b64encode(words).rstrip(b"=").decode()


class _WithLogins(Broker):
    """A broker with one more listener, for all mechanisms."""

    def _format(self) -> None:
        super()._format()
        with _free_ports([0]) as [self.sasl_port]:
            text = self._properties.read_text()
        ours = f"SASL://127.0.0.1:{self.sasl_port},"
        text = text.replace("listeners=PLAINTEXT:", f"listeners={ours}PLAINTEXT:")
        module = "org.apache.kafka.common.security"
        text += "listener.security.protocol.map=SASL:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
        text += f"sasl.enabled.mechanisms={','.join(MECHANISMS)}\ninter.broker.listener.name=PLAINTEXT\n"
        for mechanism, kind, more in (
            ("plain", "plain.PlainLoginModule", 'user_me="right"'),
            ("scram-sha-256", "scram.ScramLoginModule", ""),
            ("scram-sha-512", "scram.ScramLoginModule", ""),
            ("oauthbearer", "oauthbearer.OAuthBearerLoginModule", 'unsecuredLoginStringClaim_sub="me"'),
        ):
            text += f"listener.name.sasl.{mechanism}.sasl.jaas.config={module}.{kind} required {more};\n"
        self._properties.write_text(text)


def test_kafka_takes_each_way_to_log_in_and_refuses_a_wrong_password() -> None:
    claims = json.dumps({"sub": "me", "iat": time.time(), "exp": time.time() + 600}).encode()
    algorithm = _base64(b'{"alg":"none"}')
    token = f"{algorithm}.{_base64(claims)}."

    async def give_passwords(port: int) -> None:
        link = Link(Address("127.0.0.1", port), Security(), timeout_ms=20_000)
        await link.open()
        for kind, name in ((1, "sha256"), (2, "sha512")):
            salted = hashlib.pbkdf2_hmac(name, b"right", b"salt" * 8, 4096)
            one = {"name": "me", "mechanism": kind, "iterations": 4096, "salt": b"salt" * 8, "saltedPassword": salted}
            said = await link.call("AlterUserScramCredentials", {"deletions": [], "upsertions": [one]})
            assert not said["results"][0]["errorCode"], said
        link.close()

    with _WithLogins() as broker:
        asyncio.run(give_passwords(broker.port))
        for mechanism in MECHANISMS:
            for password in (token if mechanism == OAUTHBEARER else "right", "wrong"):
                security = Security(user="me", password=password, mechanism=mechanism)
                settings = Settings(Address("127.0.0.1", broker.sasl_port), security, records=100, create=True)
                load = Load(parse('[[topics]]\nname = "t"', "w"))
                if password == "wrong":
                    with pytest.raises(UsageError, match="refuses the user me"):
                        run_load(load, settings)
                else:
                    assert run_load(load, settings).sent.records == 100
