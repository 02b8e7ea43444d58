from typing_extensions import Buffer

def spring(data: Buffer, at: int) -> int:
    """Read the record at ``at`` and, behind the last gate, one byte beyond ``data``: that byte plus 1, or 0."""
