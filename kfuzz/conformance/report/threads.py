"""The addresses of the public threads that flags and reasons name in short: ``sarama #2658``, ``KAFKA-5031``."""

from __future__ import annotations

import re
from typing import Final

_CVE: Final = re.compile(r"CVE-\d{4}-\d{4,}")
_KAFKA: Final = re.compile(r"KAFKA-\d+")
_THREAD: Final = re.compile(r"(.+) #(\d+)")
# A project's repository. A project that is not here has threads without addresses.
_REPOSITORIES: Final = {
    "Dekaf": "thomhurst/Dekaf",
    "franz-go": "twmb/franz-go",
    "kafka-go": "segmentio/kafka-go",
    "kafka-protocol-rs": "tychedelia/kafka-protocol-rs",
    "kafka-python": "dpkp/kafka-python",
    "kafka_protocol": "kafka4beam/kafka_protocol",
    "kafkajs": "tulios/kafkajs",
    "librdkafka": "confluentinc/librdkafka",
    "platformatic kafka": "platformatic/kafka",
    "redpanda": "redpanda-data/redpanda",
    "rskafka": "influxdata/rskafka",
    "ruby-kafka": "zendesk/ruby-kafka",
    "sarama": "IBM/sarama",
}


def address_of(link: str) -> str:
    """The address of a thread or a CVE; an empty text if it is not known.

    >>> from kfuzz.conformance.report.threads import address_of
    >>> address_of("sarama #2658")
    'https://github.com/IBM/sarama/issues/2658'
    >>> address_of("an unknown project #1")
    ''
    """
    if link.startswith("https://"):
        return link
    if _CVE.fullmatch(link):
        return f"https://www.cve.org/CVERecord?id={link}"
    if _KAFKA.fullmatch(link):
        return f"https://issues.apache.org/jira/browse/{link}"
    found = _THREAD.fullmatch(link)
    # The host sends the number of a pull request on to its own page.
    if found and found[1] in _REPOSITORIES:
        return f"https://github.com/{_REPOSITORIES[found[1]]}/issues/{found[2]}"
    return ""
