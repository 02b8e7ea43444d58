"""kfuzz: vectors, referee, fuzzer and corpus generator for Apache Kafka's wire format.

Importing this package is cheap: it loads no compiled module and no codec. The public modules:

* :mod:`kfuzz.records`: read and write record batches
* :mod:`kfuzz.messages`: read and write Kafka's messages
* :mod:`kfuzz.control`: control records with typed values
* :mod:`kfuzz.vectors`: the golden suite
* :mod:`kfuzz.conformance`: judge implementations against the suite
* :mod:`kfuzz.mutate`: well-formed inputs and their mutants
* :mod:`kfuzz.errors`: the exceptions that all of them raise

For tests of clients, :func:`kfuzz.proxy` and :func:`kfuzz.cluster` (docs/client-tests.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kfuzz.relay.local import cluster, proxy

__all__ = ["__version__", "cluster", "proxy"]

__version__ = "0.1.0"

if not TYPE_CHECKING:

    def __getattr__(name):
        if name in ("cluster", "proxy"):
            from importlib import import_module

            return getattr(import_module("kfuzz.relay.local"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
