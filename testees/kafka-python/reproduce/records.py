"""Reads a file of record batches as kafka-python's consumer does, and checks CRCs: python records.py FILE"""

import faulthandler
import re
import sys
from pathlib import Path

from kafka.errors import CorruptRecordError, KafkaError
from kafka.record.memory_records import MemoryRecords

faulthandler.dump_traceback_later(30, exit=True)  # a decoder that hangs shows where
count = 0
try:
    records = MemoryRecords(Path(sys.argv[1]).read_bytes())
    while (batch := records.next_batch()) is not None:
        if not batch.validate_crc():
            raise CorruptRecordError(f"Record batch at offset {batch.base_offset} failed crc check")
        for r in batch:
            if not r.validate_crc():
                raise CorruptRecordError(f"Record at offset {r.offset} failed crc check")
            key, value = ("null" if data is None else len(data) for data in (r.key, r.value))
            print(f"offset {r.offset} timestamp {r.timestamp} key {key} value {value} headers {len(r.headers)}")
            count += 1
    print(f"records: {count}")
except KafkaError as error:
    print(f"error: {error!r}")
finally:
    if (status := Path("/proc/self/status")).exists():  # on Linux: peaks of address space and memory
        print(*re.findall("Vm(?:Peak|HWM).*", status.read_text()), file=sys.stderr)
