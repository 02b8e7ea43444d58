"""Reads a file of record batches with kio's read_batch, one after the other: python records.py FILE"""

import faulthandler
import re
import sys
from pathlib import Path

from kio.records.readers import read_batch
from kio.serial.errors import SerialError

data = Path(sys.argv[1]).read_bytes()
faulthandler.dump_traceback_later(30, exit=True)  # a decoder that hangs shows where
at = count = 0
try:
    while at < len(data):
        batch, size = read_batch(data, at)
        at += size
        for r in batch.records:
            key, value = ("null" if field is None else len(field) for field in (r.key, r.value))
            time = r.timestamp.isoformat()
            print(f"offset {r.offset} timestamp {time} key {key} value {value} headers {len(r.headers)}")
            count += 1
    print(f"records: {count}")
except (SerialError, ValueError) as error:
    print(f"error: {error!r}")
finally:
    if (status := Path("/proc/self/status")).exists():  # on Linux: peaks of address space and memory
        print(*re.findall("Vm(?:Peak|HWM).*", status.read_text()), file=sys.stderr)
