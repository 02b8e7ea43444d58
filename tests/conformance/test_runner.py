"""The loop that asks a peer: anything with a handshake and answers is a peer, and an oracle judges what it did."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from conformance.referee_tools import make_vector

from kfuzz.conformance.broker.settings import handshake_of
from kfuzz.conformance.judge.compare import Case, Cell
from kfuzz.conformance.judge.runner import cells
from kfuzz.conformance.protocol.lines import Handshake
from kfuzz.conformance.protocol.peer import Question

T = TypeVar("T")


class Counting:
    """A peer in this process: its result is the number of bytes. It gives one answer only, to the last question."""

    handshake = handshake_of("counting@1")

    def answers(self, questions: Iterable[Question[T]]) -> Iterator[tuple[Question[T], int]]:
        *_, last = questions
        yield last, len(bytes.fromhex(last.request["hex"]))


def even(case: Case, handshake: Handshake, size: int) -> Cell:
    return Cell("pass" if size % 2 == 0 else "fail", f"{size} bytes for {handshake.label}")


def test_a_peer_is_asked_what_it_offers_and_judged_by_its_oracle() -> None:
    expect = {"consumer": {"verdict": "valid"}, "broker": {"verdict": "valid"}}
    vectors = [make_vector(f"toy/{size}", bytes(size), expect=expect) for size in (1, 2, 3)]
    cases = [Case(vector, role) for vector in vectors for role in ("consumer", "broker")]
    found = {case.key: (cell.outcome, cell.text) for case, cell in cells(Counting(), cases, even)}
    # Nothing was answered in time about the first two as a broker.
    assert found.pop(("toy/3", "broker")) == ("fail", "3 bytes for counting@1")
    assert set(found.values()) == {("unsupported", "does not offer the role consumer")}
    assert len(found) == 3
