"""The structure-aware mutator: it changes the structure of a well-formed input, then repairs parts of it at random."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final

from kfuzz.errors import UsageError
from kfuzz.kafka import CODECS, Codec, Role
from kfuzz.mutate import well_formed as source
from kfuzz.mutate.dice import Dice
from kfuzz.mutate.engine import KINDS, Engine
from kfuzz.records.writer import encode_batch

__all__ = ["KINDS", "Mutator"]

# Share of inputs that stay unchanged, to test that readers still accept valid input.
UNCHANGED: Final = 0.05
# Share of inputs that begin with a seed, if seeds were given.
FROM_SEED: Final = 0.4
# The largest input that a mutation makes of a smaller one.
SIZE_MAX: Final = 1 << 20
# Generated batches from which parts are taken.
OTHERS: Final = 64


class Mutator:
    """An endless source of inputs; the same arguments give the same inputs.

    ``repair``: the probability, from 0 to 1, that each length, count, CRC and compression is repaired after a change.
    ``seeds``: inputs to change, besides the generated ones.
    ``codecs``: the codecs of generated batches; must include "none". Compressed bytes depend on the versions of the
    codec libraries; with ``codecs=("none",)`` and no seeds, inputs are the same everywhere.
    ``role``: for "broker", inputs begin as Produce requests (one batch from offset 0 on) and repair keeps that form.

    Raises ``UsageError`` for other values of ``repair`` and ``codecs``.
    """

    def __init__(
        self,
        seed: int,
        *,
        repair: float = 0.95,
        seeds: Sequence[bytes] = (),
        codecs: Sequence[Codec] = CODECS,
        role: Role = "consumer",
    ) -> None:
        if not 0 <= repair <= 1:
            raise UsageError(f"repair is {repair}; give a probability from 0 to 1")
        if "none" not in codecs or not set(codecs) <= set(CODECS):
            raise UsageError(f'codecs are {", ".join(codecs)}; give any of {", ".join(CODECS)}, and always "none"')
        self.seed = seed
        self.repair = repair
        self.seeds = tuple(seeds)
        self.codecs = tuple(codecs)
        self.produced = role == "broker"
        self.index = 0
        self._engine = Engine(repair, self.produced)

    @property
    def kinds(self) -> Counter[str]:
        """How often each of ``KINDS`` was applied so far."""
        return Counter(self._engine.kinds)

    @cached_property
    def _others(self) -> tuple[bytes, ...]:
        """Inputs from which parts are taken. They follow from the arguments, so no input depends on earlier ones."""
        dice = Dice(self.seed, -1)
        made = tuple(encode_batch(source.batch(dice, self.codecs)) for _ in range(OTHERS))
        return made + tuple(seed for seed in self.seeds if len(seed) <= SIZE_MAX)

    def __iter__(self) -> Iterator[bytes]:
        while True:
            yield self.input()

    def input(self) -> bytes:
        """The next input."""
        self.index += 1
        return self.input_at(self.index - 1)

    def input_at(self, index: int) -> bytes:
        """Input number ``index``, counted from 0. It does not depend on earlier calls."""
        dice = Dice(self.seed, index)
        data = self._begin(dice)
        return data if dice.chance(UNCHANGED) else self._mutate(data, dice)

    def mutate(self, data: bytes) -> bytes:
        """``data`` after one to three changes and repair. Accepts any bytes; changes batches by their structure."""
        self.index += 1
        return self._mutate(data, Dice(self.seed, self.index - 1))

    def _begin(self, dice: Dice) -> bytes:
        if self.produced:
            return self._begin_produced(dice)
        if self.seeds and dice.chance(FROM_SEED):
            return dice.pick(self.seeds)
        data = encode_batch(source.batch(dice, self.codecs))
        if dice.chance(0.05):
            data += encode_batch(source.batch(dice, self.codecs))
        return data

    def _begin_produced(self, dice: Dice) -> bytes:
        if self.seeds and dice.chance(FROM_SEED / 2):
            # A broker requires base offset 0, which few seeds have. The CRC does not cover it, so overwrite it.
            return bytes(8) + dice.pick(self.seeds)[8:] if dice.chance(self.repair) else dice.pick(self.seeds)
        return encode_batch(source.produced(dice, self.codecs))

    def _mutate(self, data: bytes, dice: Dice) -> bytes:
        return self._engine.mutate(data, dice.pick(self._others), dice, SIZE_MAX)
