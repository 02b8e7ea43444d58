"""A broker that shows the golden vectors, and other topics, to any client, and takes what producers send.

``topics`` says what a topic holds and which offsets it has, and ``written`` is a partition that clients write to.
``answers`` turns a request into its answer, with ``fetching``, ``producing`` and ``groups``; ``cluster`` has what they
share. ``server`` has the connections, and ``feeding`` takes topics from another program. docs/serve.md has the rules.

``Topics``, ``topics_of(vectors)``, ``Topic``
    the topics of a broker, those that vectors make, and one of them
``Settings``
    where to listen, and which versions of Fetch to offer
``Server``
    the broker itself, for a running event loop
``Report``
    what clients have asked for
``feed(cluster, lines, say)``
    take topics from lines of JSON for the broker's ``cluster``
"""

from kfuzz.serve.answers import Broker
from kfuzz.serve.cluster import Cluster, Report
from kfuzz.serve.feeding import feed
from kfuzz.serve.server import Server, Settings
from kfuzz.serve.topics import Topic, Topics, topics_of

__all__ = ["Broker", "Cluster", "Report", "Server", "Settings", "Topic", "Topics", "feed", "topics_of"]
