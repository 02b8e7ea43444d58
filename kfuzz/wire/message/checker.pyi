# The codes of notes.
CODES: tuple[str, ...]

# (code, offset, found, allowed, steps): a step is a field's name and the element of its array, -1 for none.
Note = tuple[str, int, int, int, list[tuple[str, int]]]
