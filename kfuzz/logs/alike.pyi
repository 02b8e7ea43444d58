from typing_extensions import Buffer

def alike(one: Buffer, other: Buffer, at: int, at_other: int) -> tuple[int, int, int, int, int]:
    """Walk over ``one`` from byte ``at`` on, and over ``other`` from ``at_other`` on, while their batches are alike.

    Batches are alike if their bytes are equal, or all but their leader epochs. Returns where the walk ended in both,
    how many batches are alike, how many of these differ in the leader epoch, and where the first of those begins in
    ``one``, or -1. CRCs are not judged. ``IndexError`` if it would begin outside.
    """
