"""Shows the golden vectors to a running broker: each goes into a Produce request, and is fetched back (docs/probe.md).

>>> from kfuzz.probe import cases_for_broker
>>> from kfuzz.vectors import load_suite
>>> [case.vector.id for case in cases_for_broker(load_suite("records/v2/count/of-2"))]
['records/v2/count/of-2']

``cases_for_broker(vectors)``
    the questions: every vector of records, in the role broker
``probe(cases, settings, places=, name=, whole=)``
    ask a broker these questions; returns a ``Probed`` with a ``kfuzz.conformance.Run``
``Settings``, ``Address``, ``Security``
    where the broker is, and what the probe may cost
``summary(run, wanted)``
    what was answered, stored and served, in a few lines

``probe_apis(vectors, settings, hostility)``
    ask a broker every API that it offers, in conversations; returns a ``Report``
``Hostility``
    which hostile requests that are

Below them, ``asking`` asks about one vector, ``observed`` says what the broker did with it, and ``judging`` compares
that with Kafka. For all APIs, ``conversations`` reaches states of a broker, ``hostile`` makes requests for them, and
``reactions`` says which answers are harm. ``sides`` is a broker with its connections, and checks that clients can still
work. ``comparing`` compares two, ``machine`` watches a process and its log, and ``conversing`` asks.
"""

from kfuzz.client.address import Address, Security
from kfuzz.probe.conversing import Hostility, probe_apis
from kfuzz.probe.judging import cases_for_broker, summary
from kfuzz.probe.probing import Probed, probe
from kfuzz.probe.reactions import Report
from kfuzz.probe.settings import Settings

__all__ = [
    "Address",
    "Hostility",
    "Probed",
    "Report",
    "Security",
    "Settings",
    "cases_for_broker",
    "probe",
    "probe_apis",
    "summary",
]
