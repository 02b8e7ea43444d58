"""Shares the corpus and the causes of a target with campaigns elsewhere, in a folder or at a URI.

``PLACE/<target>/corpus`` has each input under its SHA-1. ``PLACE/<target>/campaigns`` has one file for each campaign,
with its causes. Nobody waits for anybody, and nobody writes what another one writes: an input that two machines find
has one name and one content. ``PLACE/<target>/causes`` is made of all campaigns' files, in the form of a campaign's own
folder, again and again.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import secrets
import threading
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Final

from kfuzz.conformance.judge.causes import Cause
from kfuzz.documents import load_json
from kfuzz.errors import KfuzzError, UsageError
from kfuzz.fuzz.causes import ERRORS, document_text, files_of, loaded, merged_causes
from kfuzz.fuzz.targets import Target
from kfuzz.storage import Listing, in_parallel
from kfuzz.storage import Target as Place

TURN_S: Final = 5.0
INPUTS_MAX: Final = 200_000
CAMPAIGNS_MAX: Final = 10_000
# Some are read at a time. A thousand causes take less.
CAMPAIGN_BYTES_MAX: Final = 32 << 20
CORPUS: Final = "corpus"
CAMPAIGNS: Final = "campaigns"
INPUT: Final = re.compile(r"[0-9a-f]{40}")


class Shared:
    """One campaign's part. ``seeds`` are the SHA-1s of inputs that every machine has; ``causes`` returns what this
    campaign has found so far.

    ``start`` raises ``UsageError`` if nothing can be read or written there. Later, a place that does not answer only
    makes ``say`` tell it, and the campaign goes on alone.
    """

    def __init__(
        self,
        place: Place,
        target: Target,
        corpus: Path,
        seeds: Collection[str],
        causes: Callable[[], list[Cause]],
        say: Callable[[str], None],
    ) -> None:
        self._place = place.child(target.name)
        self._target = target
        self._corpus = corpus
        self._causes = causes
        self._say = say
        self._name = f"{CAMPAIGNS}/{secrets.token_hex(8)}.json"
        self._given = ""
        # The inputs that are there, or that are left out.
        self._there = set(seeds)
        # The inputs that are here, or were: the merge drops some, and those that break the target are set aside.
        self._here = set(seeds)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="kfuzz-sync", daemon=True)
        self._is_away = False

    def start(self) -> None:
        """Take what is there, and go on in a thread."""
        self.exchange()
        self._thread.start()

    def stop(self) -> None:
        """Give the inputs that are new here for the last time."""
        self._is_over.set()
        if self._thread.ident is not None:
            self._thread.join()
            self.try_to(self.exchange)

    def exchange(self) -> None:
        """Take the inputs that are new there, and give the inputs and causes that are new here."""
        listed = inputs_at(self._place)
        self._here.update(path.name for path in self._corpus.iterdir() if INPUT.fullmatch(path.name))
        fits = {name for name, size in listed.items() if size <= self._target.length_max}
        for name, data in read_inputs(self._place, sorted(fits - self._here)):
            (self._corpus / name).write_bytes(data)
        self._here |= fits
        self._there |= listed.keys()
        for name, is_given in in_parallel(self._give, sorted(self._here - self._there)):
            if is_given:
                self._there.add(name)
        self._give_causes()

    def _give_causes(self) -> None:
        text = document_text(self._causes())
        if text != (self._given or document_text([])):
            self._place.write(self._name, text)
            self._given = text

    def _give(self, name: str) -> bool:
        """Give one input. False if libFuzzer has not written all of it: then it is given the next time."""
        try:
            data = (self._corpus / name).read_bytes()
        except FileNotFoundError:
            # It breaks the target, and was set aside meanwhile.
            return True
        if hashlib.sha1(data).hexdigest() != name:
            return False
        self._place.write(f"{CORPUS}/{name}", data)
        return True

    def finish(self) -> None:
        """Give the causes as they are at the end, and write the sum of all campaigns."""

        def give_all() -> None:
            self._give_causes()
            write_causes(self._place)

        # As one: with nothing to give, the first says nothing about the place.
        self.try_to(give_all)

    def _work(self) -> None:
        while not self._is_over.wait(TURN_S):
            self.try_to(self.exchange)

    def try_to(self, do: Callable[[], object]) -> None:
        """Do it. If the place does not answer, say so once."""
        try:
            do()
            self._is_away = False
        except (KfuzzError, OSError) as error:
            if not self._is_away:
                self._say(f"{self._target.name}: the campaign goes on alone, because {self._place} fails: {error}")
            self._is_away = True


def inputs_at(place: Place) -> dict[str, int]:
    """The inputs in the corpus of a target's place, with their sizes in bytes. ``UsageError`` if they are too many."""
    return {name: size for name, size in _few(place, CORPUS, INPUTS_MAX).files.items() if INPUT.fullmatch(name)}


def read_inputs(place: Place, names: Iterable[str]) -> Iterable[tuple[str, bytes]]:
    """These inputs. They come from others: what does not have its SHA-1 as its name is left out."""
    for name, data in in_parallel(lambda name: place.read(f"{CORPUS}/{name}"), names):
        if data is not None and hashlib.sha1(data).hexdigest() == name:
            yield name, data


def write_causes(place: Place) -> list[Cause]:
    """Write the causes of all campaigns at a target's place, and return them, the worst first."""
    found: list[Cause] = []
    # They come from others.
    listed = _few(place, CAMPAIGNS, CAMPAIGNS_MAX).files.items()
    fits = [f"{CAMPAIGNS}/{name}" for name, size in listed if name.endswith(".json") and size <= CAMPAIGN_BYTES_MAX]
    for name, data in in_parallel(place.read, sorted(fits)):
        with contextlib.suppress(*ERRORS, UsageError):
            found += [loaded(entry) for entry in load_json(data or b"[]", f"{place}/{name}")]
    causes = merged_causes(found)
    for name, data in files_of(causes):
        place.write(f"causes/{name}", data)
    return causes


def _few(place: Place, directory: str, most: int) -> Listing:
    listing = place.list(directory)
    if len(listing.files) > most:
        raise UsageError(f"{place}/{directory} has more than {most} files; begin with another place")
    return listing
