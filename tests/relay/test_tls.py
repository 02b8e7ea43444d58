"""TLS and SASL on both sides of a proxy: with brokers and with clients."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import socket
import ssl
import struct
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from certificates import Certificate, certificate
from relay.proxied import Ends, asking, codes, in_loop, no_connection
from relay.test_pipe import Rig, Scripted, settled
from replay.fake_broker import FakeBroker
from serve.asking import SECONDS_MAX, request, started

import kfuzz
from kfuzz.client.address import PLAIN, Address, Security
from kfuzz.client.tls import secured
from kfuzz.errors import UsageError
from kfuzz.relay.local import proxy
from kfuzz.relay.pipe import Buffers, framed
from kfuzz.relay.proxy import Proxy, Settings
from kfuzz.relay.rule import parse_rule

LARGE_BYTES = 1 << 20
# An API that no release has: its frames are passed on as they are.
UNKNOWN = struct.pack(">hhi", 999, 0, 0)
TLS_RECORD_BYTES = 16 << 10
TLS_ALERT = b"\x15"
ELSEWHERE = "192.0.2.1"
ME = "me", "secret"


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificate(tmp_path_factory.mktemp("own"))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificate(tmp_path_factory.mktemp("other"))


def between(broker: Address, **settings: Any) -> Proxy:
    return Proxy([broker], Settings(**settings))


def at(port: int, host: str = "127.0.0.1") -> Address:
    return Address(host, port)


def trusting(own: Certificate, *login: str) -> Security:
    return Security(True, str(own.cert), *login)


def firsts(made: Proxy, code: str) -> list[str]:
    return [one.first for one in made.watch.remarks.values() if one.code == code]


async def answers(client: Ends) -> bool:
    said = await client.ask("ApiVersions", 3, {"clientSoftwareName": "test", "clientSoftwareVersion": "1"})
    return not said["errorCode"]


async def is_closed(made: Proxy, data: bytes = b"") -> bool:
    async with asking(made) as client:
        client.writer.write(data)
        try:
            # TLS may say why before it ends.
            return (await client.reader.read())[:1] in (b"", TLS_ALERT)
        except ConnectionResetError:
            return True


async def unreachable(broker: Address, **settings: Any) -> str:
    """The remarks of a proxy about a broker that it cannot use. It closes the connection of a client."""
    async with between(broker, **settings) as made:
        assert await is_closed(made)
    [first] = firsts(made, "broker-unreachable")
    return first


@contextlib.contextmanager
def scripted(script: Callable[[socket.socket], None], context: ssl.SSLContext | None = None) -> Iterator[Address]:
    """A broker in a thread, which does as ``script`` says with one connection."""

    def serve() -> None:
        one, _ = server.accept()
        one.settimeout(SECONDS_MAX)
        with one if context is None else context.wrap_socket(one, server_side=True, suppress_ragged_eofs=False) as end:
            script(end)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield at(server.getsockname()[1])
        thread.join(SECONDS_MAX)
        assert not thread.is_alive()


def connected(place: Address, context: ssl.SSLContext | None) -> socket.socket:
    """A client's socket, which raises an error if TLS does not say that it ends."""
    plain = socket.create_connection((place.host, place.port), timeout=SECONDS_MAX)
    if context is None:
        return plain
    return context.wrap_socket(plain, server_hostname=place.host, suppress_ragged_eofs=False)


def received(one: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += one.recv(size - len(data)) or pytest.fail("the connection ended")
    return data


# --- frames


@pytest.mark.parametrize("rules", [(), (parse_rule("* delay_ms=1"),)], ids=["", "delayed"])
@pytest.mark.parametrize("sides", [("client",), ("broker",), ("client", "broker")])
@in_loop
async def test_large_frames_pass_in_both_directions(sides: tuple[str, ...], rules: Any, own: Certificate) -> None:
    dice = random.Random(7)
    asked, answered = (
        [framed(head + dice.randbytes(LARGE_BYTES + at)) for at in range(3)] for head in (UNKNOWN, UNKNOWN[4:])
    )
    to_clients, to_brokers = (one in sides for one in ("client", "broker"))
    came: list[bytes] = []

    def broker(one: socket.socket) -> None:
        # So the proxy can send only parts.
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 256 << 10)
        for sent, answer in zip(asked, answered, strict=True):
            came.append(received(one, len(sent)))
            one.sendall(answer)

    ours = {"cert": own.cert, "key": own.key} if to_clients else {}
    with scripted(broker, own.context() if to_brokers else None) as address:
        security = trusting(own) if to_brokers else PLAIN
        async with (
            between(address, security=security, rules=rules, **ours) as made,
            asking(made, own.trusting() if to_clients else None) as client,
        ):
            # All at once: the proxy must wait for both ends.
            client.writer.write(b"".join(asked))
            for answer in answered:
                assert await client.reader.readexactly(len(answer)) == answer
    assert came == asked
    sums = made.watch.by_api["unknown"]
    assert (sums.requests, sums.responses) == (3, 3)
    assert codes(made) == {"api-unknown"}


class TlsRig(Rig):
    """A pipe between two pairs of sockets with TLS, with little memory."""

    left = received = b""

    def send_now(self, data: bytes) -> int:
        """Send so much as is taken now, and the rest with the next call. How many bytes are left."""
        # TLS wants the same bytes again after it has refused some.
        self.left += data
        with contextlib.suppress(ssl.SSLWantWriteError):
            while self.left:
                self.left = self.left[self.sender.send(self.left) :]
        return len(self.left)

    def receive_now(self, most: int = 1 << 20) -> None:
        """Receive what is there now, in one record of TLS at most."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self.received += self.receiver.recv(most)

    async def comes(self, expected: bytes) -> bool:
        """Whether this comes, and nothing else."""
        while len(self.received) < len(expected):
            self.receive_now()
            await asyncio.sleep(0)
        return self.received == expected


@contextlib.asynccontextmanager
async def rigged(own: Certificate) -> AsyncIterator[TlsRig]:
    made: list[socket.socket] = []
    for _ in range(2):
        pair = socket.socketpair()
        for one in pair:
            one.setblocking(False)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 100 << 10)
        made += await asyncio.gather(secured(pair[0], own.context()), secured(pair[1], own.trusting(), "127.0.0.1"))
    with contextlib.closing(TlsRig(Scripted(), made, Buffers(1))) as rig:
        yield rig
        assert not rig.lost


@pytest.mark.parametrize("before", [[], [bytes(300_000)], [bytes(LARGE_BYTES)] * 2], ids=["", "much", "more"])
@in_loop
async def test_the_rest_of_a_record_of_tls_is_received_although_nothing_else_comes(
    before: list[bytes], own: Certificate
) -> None:
    first, second = framed(b"h" * 64_000), framed(b"h" * 1_628)
    assert len(first + second) == 100 + 4 * TLS_RECORD_BYTES
    async with rigged(own) as rig:
        # The target takes only a part of it, and the first frame must wait.
        rig.pipe.put(before)
        rig.send_now(first[:100])
        await settled()
        # The fourth record does not fit into the memory, and four are received in one turn.
        assert rig.send_now((first + second)[100:]) == 0
        await settled()
        assert await rig.comes(b"".join(before) + first + second)


@pytest.mark.parametrize("seed", range(3))
@in_loop
async def test_a_pipe_with_tls_passes_on_what_comes_however_it_comes(seed: int, own: Certificate) -> None:
    dice = random.Random(seed)
    sizes = [*(dice.choice([4, 100, 5_000, 16_380, 60_000]) for _ in range(60)), LARGE_BYTES]
    data = b"".join(framed(dice.choice([b"h", b"p"]) + dice.randbytes(size)) for size in sizes)
    async with rigged(own) as rig:
        sent = 0
        while len(rig.received) < len(data):
            if dice.random() < 0.5:
                more = data[sent : sent + dice.choice([1, 1_000, 50_000, 200_000])]
                sent += len(more)
                rig.send_now(more)
            if dice.random() < 0.3:
                rig.receive_now(dice.choice([1_000, 1 << 20]))
            await asyncio.sleep(0)
        assert rig.received == data


@pytest.mark.parametrize("to_clients", [False, True])
@in_loop
async def test_the_last_response_comes_before_the_end_and_the_end_is_said(to_clients: bool, own: Certificate) -> None:
    answer = framed(UNKNOWN[4:8] + b"last" * 100_000)

    def broker(one: socket.socket) -> None:
        received(one, 12)
        one.sendall(answer)

    def client(place: Address) -> None:
        with connected(place, own.trusting() if to_clients else None) as one:
            one.sendall(framed(UNKNOWN))
            assert received(one, len(answer)) == answer
            assert one.recv(1) == b""
            if isinstance(one, ssl.SSLSocket):
                one.unwrap()

    ours: Any = {"cert": own.cert, "key": own.key} if to_clients else {"security": trusting(own)}
    with scripted(broker, None if to_clients else own.context()) as address:
        async with between(address, **ours) as made:
            await asyncio.to_thread(client, made.places[address])
            await no_connection(made)
    assert codes(made) == {"api-unknown"}


@in_loop
async def test_the_end_of_a_client_is_said_to_a_broker_with_tls(own: Certificate) -> None:
    ended: list[bytes] = []

    def broker(one: socket.socket) -> None:
        received(one, 12)
        ended.append(one.recv(1))

    with scripted(broker, own.context()) as address:
        async with between(address, security=trusting(own)) as made, asking(made) as client:
            client.writer.write(framed(UNKNOWN))
            client.writer.write_eof()
            assert await client.reader.read() == b""
    assert codes(made) == {"api-unknown"}
    assert ended == [b""]


# --- towards brokers


@in_loop
async def test_a_broker_gets_its_name_and_must_have_a_certificate_for_it(own: Certificate, other: Certificate) -> None:
    names: list[str | None] = []
    context = own.context()
    context.sni_callback = lambda one, name, _: names.append(name)
    with FakeBroker(context=context) as broker:
        named = await unreachable(at(broker.port, "localhost"), security=trusting(own))
        unknown = await unreachable(at(broker.port), security=trusting(other))
    assert names[0] == "localhost"
    assert f"the certificate of localhost:{broker.port} is not trusted: Hostname mismatch" in named
    assert unknown.endswith("is not trusted: self-signed certificate; name its CA with --tls-ca")


@in_loop
async def test_a_broker_gets_the_certificate_of_the_proxy(own: Certificate) -> None:
    context = own.context()
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(own.cert)
    shows = replace(trusting(own), certificate=str(own.cert), key=str(own.key))
    with FakeBroker(context=context) as broker:
        async with between(at(broker.port), security=shows) as made, asking(made) as client:
            assert await answers(client)


@in_loop
async def test_a_broker_that_speaks_no_tls_is_a_remark(own: Certificate) -> None:
    with scripted(lambda one: one.sendall(framed(UNKNOWN) * 10)) as address:
        first = await unreachable(address, security=trusting(own))
    assert first.endswith("cannot be reached: the other side does not speak TLS")


@in_loop
async def test_a_password_that_a_broker_refuses_is_a_remark() -> None:
    with FakeBroker(login=ME) as broker:
        first = await unreachable(at(broker.port), security=Security(user="me", password="wrong"))
    assert first.endswith(f"127.0.0.1:{broker.port} refuses the user me: no such user; check the password")


@in_loop
async def test_a_password_does_not_go_to_another_machine_without_encryption() -> None:
    security = Security(user="me", password="x")
    first = await unreachable(at(9, ELSEWHERE), security=security, open_to_others=True)
    assert f"the password of me would go to {ELSEWHERE}:9 without encryption; add --tls" in first


@pytest.mark.parametrize("tls", [False, True])
@in_loop
async def test_the_proxy_logs_in_for_clients_that_do_not(tls: bool, own: Certificate) -> None:
    with FakeBroker(context=own.context() if tls else None, login=ME) as broker:
        security = Security(tls, str(own.cert), *ME)
        async with between(at(broker.port), security=security) as made, asking(made) as client:
            assert await answers(client)
            said = await client.ask("Metadata", 9, {"topics": []})
            assert (said["brokers"][0]["host"], said["brokers"][0]["port"]) == ("127.0.0.1", client.port)
        assert broker.asked["SaslAuthenticate"] == 1
    assert not made.watch.remarks
    assert list(made.watch.by_api) == ["ApiVersions", "Metadata"]


@in_loop
async def test_the_login_of_a_client_passes_as_it_is(own: Certificate) -> None:
    with FakeBroker(context=own.context(), login=ME) as broker:
        async with (
            between(at(broker.port), security=trusting(own), cert=own.cert, key=own.key) as made,
            asking(made, own.trusting()) as client,
        ):
            assert await answers(client)
            assert (await client.ask("SaslHandshake", 1, {"mechanism": "PLAIN"}))["errorCode"] == 0
            for word, code in ((b"other", 58), (b"secret", 0)):
                said = await client.ask("SaslAuthenticate", 2, {"authBytes": b"\0me\0" + word})
                assert said["errorCode"] == code
            assert (await client.ask("Metadata", 9, {"topics": []}))["brokers"][0]["port"] == client.port
    assert not made.watch.remarks
    assert made.watch.by_api["SaslAuthenticate"].errors == {"SASL_AUTHENTICATION_FAILED": 1}


@in_loop
async def test_a_login_that_is_no_request_closes_the_connection() -> None:
    with FakeBroker(login=ME) as broker:
        async with between(at(broker.port)) as made:
            assert await is_closed(made, framed(request("SaslHandshake", 0, {"mechanism": "PLAIN"})))
        assert not broker.asked["SaslHandshake"]
    assert codes(made) == {"sasl-without-requests"}


# --- towards clients


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (framed(request("Metadata", 9, {"topics": []})), "the other side does not speak TLS"),
        (b"GET / HTTP/1.1\r\n\r\n", "the other side does not speak TLS"),
        (b"\x16\x03\x01\x00\x05\xff\xff\xff\xff\xff", ""),
    ],
)
@in_loop
async def test_bytes_that_are_no_tls_are_a_remark(data: bytes, reason: str, own: Certificate) -> None:
    with FakeBroker() as broker:
        async with between(at(broker.port), cert=own.cert, key=own.key) as made:
            for _ in range(3):
                assert await is_closed(made, data)
        assert broker.connections == 0
    [remark] = made.watch.remarks.values()
    assert (remark.code, remark.count) == ("tls-handshake", 3)
    assert remark.first.startswith(f"127.0.0.1:{broker.port}: connection 1: the TLS handshake of a client failed: ")
    assert remark.first.endswith(reason)


@in_loop
async def test_a_handshake_ends_in_time_and_nobody_waits_for_it(
    own: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kfuzz.relay.proxy.HANDSHAKE_S_MAX", 0.2)
    with FakeBroker() as broker:
        async with between(at(broker.port), cert=own.cert, key=own.key) as made, asking(made) as silent:
            silent.writer.write(b"\x16\x03")
            async with asking(made, own.trusting()) as client:
                assert await answers(client)
                assert len(made.connections) == 2
                assert await silent.is_closed_after(b"")
    assert firsts(made, "tls-handshake")[0].endswith(
        "connection 1: the TLS handshake of a client failed: no answer in time"
    )


@in_loop
async def test_the_end_of_the_proxy_ends_handshakes(own: Certificate) -> None:
    async with between(at(9), cert=own.cert, key=own.key) as made:
        silent = await asking(made).__aenter__()
        while not made.connections:
            await asyncio.sleep(0)
    assert await silent.is_closed_after(b"")
    silent.writer.close()
    assert not made.connections
    assert not made.watch.remarks


@in_loop
async def test_a_client_that_does_not_trust_the_certificate_is_a_remark(own: Certificate, other: Certificate) -> None:
    def client(place: Address) -> None:
        with pytest.raises(ssl.SSLCertVerificationError):
            connected(place, other.trusting())

    async with between(at(9), cert=own.cert, key=own.key) as made:
        await asyncio.to_thread(client, made.places[at(9)])
        while not made.watch.remarks:
            await asyncio.sleep(0.001)
    assert firsts(made, "tls-handshake")[0].endswith("failed: TLSV1_ALERT_UNKNOWN_CA")


def test_files_that_are_no_certificate_and_key_are_refused(
    own: Certificate, other: Certificate, tmp_path: Path
) -> None:
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "broken").write_bytes(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    (tmp_path / "locked").mkdir()
    locked = certificate(tmp_path / "locked", password="long enough")
    missing, empty, broken = (tmp_path / name for name in ("missing", "empty", "broken"))
    unusable = "the key in {key} cannot be used with {cert}: "
    for cert, key, sentence in (
        (missing, own.key, "{cert} "),
        (own.cert, missing, "{key} "),
        (tmp_path, own.key, "{cert} "),
        (empty, own.key, "{cert} has no certificate in PEM form; name another file with --tls-cert"),
        (own.cert, None, "{cert} has no private key in PEM form; name its file with --tls-key"),
        (None, own.key, "{key} is a key without a certificate; name the file of its certificate with --tls-cert"),
        (own.cert, other.key, unusable + "it belongs to another certificate"),
        (broken, own.key, unusable + "one of them is broken"),
        (locked.cert, locked.key, unusable + "one of them is broken"),
    ):
        with pytest.raises(UsageError) as refused, proxy("127.0.0.1:9", cert=cert, key=key):
            pass
        assert str(refused.value).startswith(sentence.format(cert=cert, key=key))
    no_ca = proxy("127.0.0.1:9", security=Security(tls=True, ca=str(empty)))
    with pytest.raises(UsageError, match="is not a file of certificates"), no_ca:
        pass


@in_loop
async def test_the_key_may_be_in_the_file_of_the_certificate(own: Certificate, tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_bytes(own.cert.read_bytes() + own.key.read_bytes())
    with FakeBroker() as broker:
        async with between(at(broker.port), cert=both) as made, asking(made, own.trusting()) as client:
            assert await answers(client)


@pytest.mark.full
def test_the_command_speaks_tls_with_both_sides_and_logs_in(own: Certificate) -> None:
    async def asks(port: int) -> None:
        async with asyncio.timeout(SECONDS_MAX), Ends(port, own.trusting()) as client:
            assert await answers(client)

    files = ["--tls-ca", str(own.cert), "--tls-cert", str(own.cert), "--tls-key", str(own.key)]
    with FakeBroker(context=own.context(), login=ME) as broker:
        words = ("proxy", "0", f"127.0.0.1:{broker.port}", *files, "--user", ME[0])
        with started(*words, env=os.environ | {"KFUZZ_PASSWORD": ME[1]}) as (run, said):
            asyncio.run(asks(int(said.split()[3].rpartition(":")[2])))
            run.send_signal(signal.SIGINT)
            out, _ = run.communicate(timeout=SECONDS_MAX)
        assert out.startswith("1 connection\n")
        assert run.returncode == 0
        assert broker.asked["SaslAuthenticate"] == 1


# --- whole clients


@pytest.mark.full
def test_a_client_writes_and_reads_large_records_with_tls_on_both_sides(own: Certificate) -> None:
    kafka = pytest.importorskip("kafka")
    tls = {"security_protocol": "SSL", "ssl_cafile": str(own.cert)}
    values = [random.Random(at).randbytes(LARGE_BYTES - 1000) for at in range(5)]
    # The second proxy is a broker with TLS for the first one.
    with (
        kfuzz.cluster(2) as brokers,
        proxy(brokers.bootstrap, cert=own.cert, key=own.key) as second,
        proxy(second.bootstrap, security=trusting(own), cert=own.cert, key=own.key) as first,
    ):
        brokers.topic("t")
        producer = kafka.KafkaProducer(bootstrap_servers=first.bootstrap, max_request_size=2 << 20, **tls)
        for value in values:
            producer.send("t", value).get(SECONDS_MAX)
        producer.close()
        consumer = kafka.KafkaConsumer(
            "t", bootstrap_servers=first.bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=10_000, **tls
        )
        got = [next(consumer).value for _ in values]
        consumer.close()
        assert got == values
        assert not first.summary()["remarks"]
        assert first.summary()["apis"]["Produce"]["request_bytes"] > 5 * (LARGE_BYTES - 1000)
