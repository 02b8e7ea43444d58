class HeldBuffer:
    """The bytes of a buffer, held as long as this object lives. Only compiled modules create it."""
