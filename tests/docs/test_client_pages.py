"""docs/client-tests.md works word for word: the program of each section is run against brokers of `kfuzz serve`."""

from __future__ import annotations

import contextlib
import re
import shlex
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from conftest import require_tool
from docs.following import follow, run, steps
from docs.pages import ROOT, of_block, shows
from docs.samples import environment

import kfuzz
from kfuzz.conformance.protocol.testees import all_testees, select

PAGE: Final = (ROOT / "docs" / "client-tests.md").read_text()
BROKER: Final = "127.0.0.1:9092"
TIMEOUT_S: Final = 60
TOOLS: Final = {"Java": ("java", "javac", "mvn"), "Go": ("go",), "Node": ("node", "npm")}
# The versions that are tested. A reader gets the newest.
PINNED: Final = {"franz-go/pkg/kgo\n": "franz-go/pkg/kgo@v1.22.2\n", "install kafkajs\n": "install kafkajs@2.2.4\n"}


def section(title: str) -> str:
    """The text of a section of the page."""
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, title
    return found[1]


@pytest.mark.full
@pytest.mark.parametrize(("title", "command"), [("From Python", "python"), ("With pytest", "python -m pytest -q")])
def test_a_python_section_prints_what_it_shows(title: str, command: str, tmp_path: Path) -> None:
    program, *output = steps(section(title))
    (tmp_path / "test_mine.py").write_text(program.block)
    done = run(f"{command} test_mine.py", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert shows(output[0].block if output else "…\n1 passed…", done.stdout)


@contextlib.contextmanager
def running(command: str, folder: Path) -> Iterator[Iterator[str]]:
    """The lines that a server prints."""
    with subprocess.Popen(
        ["bash", "-c", f"exec {command}"], cwd=folder, env=environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        try:
            yield process.stdout
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT_S) == 0


@pytest.mark.full
def test_the_servers_of_the_page_say_what_it_shows(tmp_path: Path) -> None:
    [step] = steps(section("A broker for the other languages"))
    made, serve = of_block("", step.block)
    subprocess.run(["bash", "-c", made.text], cwd=tmp_path, check=True)
    *_, proxy_step, rule_step = steps(section("The control port"))
    [proxy], [rule] = (list(of_block("", one.block)) for one in (proxy_step, rule_step))
    with running(serve.text.replace("9092", "0"), tmp_path) as lines:
        assert serve.output
        said = "".join(next(lines) for _ in serve.output.splitlines())
        assert shows(re.sub(r":909\d", ":…", serve.output), said)
        [broker] = re.findall(r"at (\S+),", said)
        command = proxy.text.replace("19092", "0").replace("19093", "0").replace(BROKER, broker)
        with running(command, tmp_path) as lines:
            assert proxy.output
            said = "".join(next(lines) for _ in proxy.output.splitlines())
            assert shows(re.sub(r"\d{5}|9092", "…", proxy.output), said)
            host, port = "127.0.0.1", int(said.split()[-1])
            with socket.create_connection((host, port), timeout=TIMEOUT_S) as control:
                line = shlex.split(rule.text)[1]
                control.sendall(f"{line}\n".encode())
                assert control.makefile().readline().strip() == rule.output


@pytest.mark.nightly
@pytest.mark.parametrize("language", TOOLS)
def test_a_language_section_works_word_for_word(language: str, tmp_path: Path) -> None:
    for tool in TOOLS[language]:
        require_tool(tool, f"the section about {language} needs it")
    if language == "Java":
        # kafka-clients and its dependencies, as the page has them.
        [testee] = select(all_testees(), ["kafka-consumer"])
        testee.make_ready()
        [jar] = testee.folder.glob(f"target/{testee.version}/lib/kafka-clients-*.jar")
        (tmp_path / "lib").symlink_to(jar.parent)
    with kfuzz.cluster(3) as brokers:
        brokers.topic("orders")
        for step in steps(section(f"From {language}")):
            block = step.block.replace(BROKER, brokers.bootstrap.split(",")[0])
            for plain, pinned in PINNED.items():
                block = block.replace(plain, pinned)
            follow(step._replace(block=block), tmp_path)
        produced = brokers.line(topic="orders")["produced"]
        assert any(b"tea" in bytes.fromhex(one["hex"]) for one in produced)
