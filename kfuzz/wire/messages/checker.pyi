# The codes of notes.
CODES: tuple[str, ...]

# (code, offset, found, allowed, steps): a step is a field's name and the index of its array's element, or -1.
Note = tuple[str, int, int, int, list[tuple[str, int]]]
