"""Decodes a file with a message's body, without its header: python messages.py FILE request|response KEY VERSION"""

import faulthandler
import re
import sys
from pathlib import Path

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader
from kio.serial.errors import SerialError

faulthandler.dump_traceback_later(30, exit=True)  # a decoder that hangs shows where
file, kind, key, version = sys.argv[1:]
load = load_request_schema if kind == "request" else load_response_schema
read = entity_reader(load(int(key), int(version)))
try:
    message, _ = read(Path(file).read_bytes(), 0)
    print(f"message: {message}")
except (SerialError, ValueError) as error:
    print(f"error: {error!r}")
finally:
    if (status := Path("/proc/self/status")).exists():  # on Linux: peaks of address space and memory
        print(*re.findall("Vm(?:Peak|HWM).*", status.read_text()), file=sys.stderr)
