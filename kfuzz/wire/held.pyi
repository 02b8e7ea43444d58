class Held:
    """The bytes of a buffer, held for as long as this object lives; compiled modules alone make it."""
