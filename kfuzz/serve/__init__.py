"""A broker that shows the golden vectors to any client: each vector is a topic with one partition.

``topics`` says what a topic holds and which offsets it has, ``answers`` turns a request into its answer, ``server``
has the connections, and ``feeding`` takes topics from another program. docs/serve.md has the rules.

``Topics``, ``topics_of(vectors)``, ``Topic``
    the topics of a broker, those that vectors make, and one of them
``Settings``
    where to listen, and which versions of Fetch to offer
``Server``
    the broker itself, for a running event loop
``Report``
    what clients have asked for
``feed(topics, lines, say)``
    take topics from lines of JSON
"""

from kfuzz.serve.answers import Broker, Report
from kfuzz.serve.feeding import feed
from kfuzz.serve.server import Server, Settings
from kfuzz.serve.topics import Topic, Topics, topics_of

__all__ = ["Broker", "Report", "Server", "Settings", "Topic", "Topics", "feed", "topics_of"]
