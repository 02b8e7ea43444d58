"""Records the lines that run in child processes of tests. Python runs this file at the start of each process."""

from __future__ import annotations

import os

if "PYTEST_CURRENT_TEST" in os.environ and "MUTANTS_CHILDREN" in os.environ:
    import atexit
    import contextlib
    import json
    from pathlib import Path

    import coverage

    folder = Path(os.environ["MUTANTS_CHILDREN"])
    # The parent of ``folder`` is the copy of the checkout, whatever the working directory is.
    traced = coverage.Coverage(data_file=None, source=[str(folder.parent / "kfuzz")], config_file=False, messages=False)
    traced.start()
    test = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]

    @atexit.register
    def _note() -> None:
        traced.stop()
        data = traced.get_data()
        # Templates are compiled under their own names and are not Python files.
        lines = {name: data.lines(name) for name in data.measured_files() if name.endswith(".py")}
        file = folder / f"{os.getpid()}.part"
        # A test may limit how many bytes its child can write.
        with contextlib.suppress(OSError):
            file.write_text(json.dumps({"test": test, "lines": lines}))
            file.rename(file.with_suffix(".json"))
