"""kfuzz: vectors, referee, fuzzer and corpus generator for Apache Kafka's wire format.

Importing this package is light: it loads no compiled module and no codec. The public doors are
:mod:`kfuzz.records` (read and write record batches) and :mod:`kfuzz.vectors` (the golden suite).
"""

__version__ = "0.1.0"
