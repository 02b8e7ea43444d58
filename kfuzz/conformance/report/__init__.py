"""Reports on a run or a differential, for people and for programs.

A report depends only on the run: it contains no time and no path, and follows the order of the suite. A published
report shows a crash, hang or memory fault without a public line as "withheld", without the testee's text.

``to_json``, ``to_junit``, ``to_html``, ``to_terminal``
    a run as one JSON document (``report.schema.json``), as JUnit XML, as one HTML page, as tables for rich
``write_site``, ``require_empty``
    the page as a folder for a web server; whether a folder can take it
``from_json``, ``changes``
    the run of such a document; what changed between two runs
``history_of``
    the causes of one implementation over its versions
``sentences``
    one sentence per reason why the run fails
``differences``
    the same for a differential: ``keep``, ``sentences``, ``to_json``
"""

from kfuzz.conformance.report.comparison import Changes, changes
from kfuzz.conformance.report.document import FORMAT, from_json, notes_of, sentences, to_json
from kfuzz.conformance.report.history import History, history_of
from kfuzz.conformance.report.junit import to_junit
from kfuzz.conformance.report.page import require_empty, to_html, write_site
from kfuzz.conformance.report.terminal import to_terminal

__all__ = [
    "FORMAT",
    "Changes",
    "History",
    "changes",
    "from_json",
    "history_of",
    "notes_of",
    "require_empty",
    "sentences",
    "to_html",
    "to_json",
    "to_junit",
    "to_terminal",
    "write_site",
]
