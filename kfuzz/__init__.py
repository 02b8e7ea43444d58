"""kfuzz: vectors, referee, fuzzer and corpus generator for Apache Kafka's wire format.

Importing this package is cheap: it loads no compiled module and no codec. The public modules:

* :mod:`kfuzz.records`: read and write record batches
* :mod:`kfuzz.messages`: read and write Kafka's messages
* :mod:`kfuzz.control`: control records with typed values
* :mod:`kfuzz.vectors`: the golden suite
* :mod:`kfuzz.conformance`: judge implementations against the suite
* :mod:`kfuzz.mutate`: well-formed inputs and their mutants
* :mod:`kfuzz.errors`: the exceptions that all of them raise
"""

__version__ = "0.1.0"
