"""Names that moved work for one release, with a warning, and are the same modules."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import kfuzz
from kfuzz.moved import GONE_IN, MOVED


@pytest.mark.parametrize(("old", "new"), MOVED.items(), ids=MOVED)
def test_an_old_name_is_the_new_module_and_warns(old: str, new: str) -> None:
    sys.modules.pop(old, None)
    with pytest.warns(DeprecationWarning, match=f"{old} is now {new}; {GONE_IN} removes the old name"):
        found = importlib.import_module(old)
    assert found is importlib.import_module(new)
    assert found.__spec__ is not None
    assert found.__spec__.name == new


def test_old_imports_of_a_user_work() -> None:
    program = (
        "from kfuzz.records.conversion import convert\n"
        "from kfuzz.records import control, compact\n"
        "from kfuzz.messages import annotate\n"
        "print(convert.__name__, control.decode_control.__name__)\n"
        "print(compact.compact.__name__, annotate.annotate.__name__)\n"
    )
    done = subprocess.run([sys.executable, "-W", "error::ImportWarning", "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("convert decode_control\ncompact annotate\n", 0), done.stderr


def test_old_names_go_with_the_next_release() -> None:
    def numbers(version: str) -> list[int]:
        return [int(part) for part in version.split(".")]

    assert numbers(kfuzz.__version__) < numbers(GONE_IN), "remove kfuzz/moved.py and this file"
