from typing_extensions import Buffer

def spring(data: Buffer, at: int) -> int:
    """Read the record at ``at``. After the last gate, read one byte beyond ``data`` and overflow an int32.

    Returns 0 if the record fails a gate, and a negative number otherwise.
    """
