from kfuzz.corpora.json_values import Program

class JsonWriter:
    """Writes JSON values by the steps of a program, in compiled code; see ``kfuzz.corpora.json_values``."""

    def __init__(self, program: Program) -> None: ...
