"""The kit of the Python testees reports what happened."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

KIT = Path(__file__).resolve().parents[2] / "testees" / "python"


LIBRARY = """
class PanicException(BaseException):
    "A panic, as an extension in Rust raises it."

def fail(how):
    if how == b"generated":
        exec(compile("raise ValueError('generated')", "<codegen>", "exec"), {})
    raise {b"panic": PanicException, b"fault": KeyError}.get(how, ValueError)(how)
"""
WRAPPER = """
import sys
sys.path[:0] = [%(kit)r, %(library)r]
import kfuzz_testee, toy.deep

def decode(name, data):
    print("a library may print")
    if data == b"cannot":
        raise kfuzz_testee.Unsupported("cannot")
    return toy.deep.fail(data), None

codec = kfuzz_testee.Codec(decode, lambda name, value: value.encode(), rejections=(ValueError,))
kfuzz_testee.serve({"name": "toy", "version": "1", "outcomes": ["panic"]}, primitives=codec, package="toy")
"""


def test_the_kit_separates_rejections_faults_and_panics_and_names_the_innermost_line(tmp_path: Path) -> None:
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "__init__.py").touch()
    (tmp_path / "toy" / "deep.py").write_text(LIBRARY)
    hows = ["bad", "fault", "panic", "generated", "cannot"]
    asked = [
        {"id": how, "operation": "decode-primitive", "primitive": "string", "hex": how.encode().hex()} for how in hows
    ]
    asked.append({"id": "said", "operation": "encode-primitive", "primitive": "string", "value": "ab"})
    asked.append({"id": "lacks", "operation": "encode-primitive", "primitive": "string"})
    lines = "".join(json.dumps(one) + "\n" for one in asked)
    wrapper = WRAPPER % {"kit": str(KIT), "library": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", wrapper], input=lines, capture_output=True, text=True, timeout=30)
    hello, *answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert hello["operations"] == ["decode-primitive", "encode-primitive"]
    line = next(number for number, text in enumerate(LIBRARY.splitlines(), 1) if "raise {" in text)
    assert [(one["id"], one["outcome"], one.get("at")) for one in answers] == [
        ("bad", "rejected", f"toy/deep.py:{line}"),
        ("fault", "fault", f"toy/deep.py:{line}"),
        ("panic", "panic", f"toy/deep.py:{line}"),
        ("generated", "rejected", None),
        ("cannot", "unsupported", None),
        ("said", "accepted", None),
        ("lacks", "fault", None),
    ]
    assert answers[5]["hex"] == "6162"
    assert answers[6]["error"].startswith("BadRequest")
    assert done.stderr.count("a library may print") == 5
