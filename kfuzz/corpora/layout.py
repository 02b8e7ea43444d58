"""The files of a corpus as a whole: their names, and the sums that ``_SUCCESS`` has of them.

Generation writes these files, and verification compares them. Verification computes itself
what it checks of the segments and of the checkpoints.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

from kfuzz.corpora.fingerprints import fingerprint_lines
from kfuzz.corpora.manifest import Row, corpus_fingerprint, part_names
from kfuzz.storage import Target

SUCCESS: Final = "_SUCCESS"
MANIFEST: Final = "_manifest"
# The corpus' own copy of its workload.
WORKLOAD: Final = "_workload.toml"
# The result of verification about distributions. It is no part of the corpus.
STATISTICS: Final = "_verify.json"


def success_text(target: Target, rows: Iterable[Row]) -> str:
    """The content of ``_SUCCESS``: the corpus fingerprint, the SHA-256 of each file that it does not cover, and more.

    The lines after the first are those of ``sha256sum``, then comments with the fingerprints of all partitions.
    """
    sums = [f"{total}  {name}" for name, total in file_sums(target).items()]
    return "".join(f"{line}\n" for line in [corpus_fingerprint(rows), *sums, *fingerprint_lines(rows)])


def file_sums(target: Target) -> dict[str, str]:
    """The SHA-256 of the workload and of the manifest's files in ``target``, by their names in the corpus."""
    names = [*(f"{MANIFEST}/{name}" for name in part_names(target.child(MANIFEST))), WORKLOAD]
    return {name: hashlib.sha256(target.read(name) or b"").hexdigest() for name in names}
