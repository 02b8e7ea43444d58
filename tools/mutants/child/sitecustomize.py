"""Python runs this in each process that a test starts while the plugin notes lines: it notes them here too."""

from __future__ import annotations

import os

if "PYTEST_CURRENT_TEST" in os.environ and "MUTANTS_CHILDREN" in os.environ:
    import atexit
    import json
    from pathlib import Path

    import coverage

    folder = Path(os.environ["MUTANTS_CHILDREN"])
    # The copy of the checkout holds this folder too, wherever the process works.
    traced = coverage.Coverage(data_file=None, source=[str(folder.parent / "kfuzz")], config_file=False, messages=False)
    traced.start()
    test = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]

    @atexit.register
    def _note() -> None:
        traced.stop()
        data = traced.get_data()
        lines = {name: data.lines(name) for name in data.measured_files()}
        (folder / f"{os.getpid()}.json").write_text(json.dumps({"test": test, "lines": lines}))
