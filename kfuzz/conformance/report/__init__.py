"""Reports on a run or a differential, for people and for programs.

A report depends only on the run: it contains no time and no path, and follows the order of the suite. A published
report shows a crash, hang or memory fault without a public line as "withheld", without the testee's text.

``to_json``, ``to_junit``, ``to_html``, ``to_terminal``
    a run as one JSON document (``report.schema.json``), as JUnit XML, as one HTML page, as tables for rich
``from_json``, ``changes``
    the run of such a document; what changed between two runs
``sentences``
    one sentence per reason why the run fails
``differences``
    the same for a differential: ``keep``, ``sentences``, ``to_json``
"""

from kfuzz.conformance.report.comparison import Changes, changes
from kfuzz.conformance.report.document import FORMAT, counted, from_json, notes_of, sentences, to_json
from kfuzz.conformance.report.junit import to_junit
from kfuzz.conformance.report.page import to_html
from kfuzz.conformance.report.terminal import to_terminal

__all__ = [
    "FORMAT",
    "Changes",
    "changes",
    "counted",
    "from_json",
    "notes_of",
    "sentences",
    "to_html",
    "to_json",
    "to_junit",
    "to_terminal",
]
