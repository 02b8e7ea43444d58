"""Decodes a file with a message's body, without its header: python messages.py FILE request|response KEY VERSION"""

import faulthandler
import re
import struct
import sys
from pathlib import Path

from kafka.errors import KafkaError
from kafka.protocol import admin, consumer, metadata, producer, sasl
from kafka.protocol.api_message import ApiMessage

faulthandler.dump_traceback_later(30, exit=True)  # a decoder that hangs shows where
file, kind, key, version = sys.argv[1:]
classes = [
    value
    for module in (admin, consumer, metadata, producer, sasl)
    for value in vars(module).values()
    if isinstance(value, type) and issubclass(value, ApiMessage) and value is not ApiMessage
]
[message] = {one for one in classes if str(one.API_KEY) == key and one.is_request() == (kind == "request")}
try:
    print(f"message: {message[int(version)].decode(Path(file).read_bytes())}")
except (KafkaError, ValueError, struct.error) as error:  # what kafka.protocol.parser takes for bad input
    print(f"error: {error!r}")
finally:
    if (status := Path("/proc/self/status")).exists():  # on Linux: peaks of address space and memory
        print(*re.findall("Vm(?:Peak|HWM).*", status.read_text()), file=sys.stderr)
