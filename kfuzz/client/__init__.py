"""A small client of Kafka's protocol, for everything in kfuzz that talks to a broker with real work.

``cluster`` knows where partitions and coordinators are, ``link`` is one connection, ``protocol`` has the bytes of
requests and the meaning of errors, and ``address`` says where the brokers are. ``copying`` makes a log directory of
topics. Nothing else here looks into batches.
"""

from kfuzz.client.address import Access, Address, Security

__all__ = ["Access", "Address", "Security"]
