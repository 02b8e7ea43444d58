"""Reports: what a run or a differential says, for people and for programs.

All of them are functions of the run alone: no time, no path, no order but the suite's. In a run that is published, a
crash, hang or memory fault that no public line tells of shows as "withheld", without the testee's words.

``to_json``, ``to_junit``, ``to_html``, ``to_terminal``
    a run as one JSON document (``report.schema.json``), as JUnit XML, as one HTML page, as tables for rich
``sentences``
    what fails a run, a sentence each
``differences``
    the same for a differential: ``keep``, ``sentences``, ``to_json``
"""

from kfuzz.conformance.report.document import FORMAT, counted, notes_of, sentences, to_json
from kfuzz.conformance.report.junit import to_junit
from kfuzz.conformance.report.page import to_html
from kfuzz.conformance.report.terminal import folded, to_terminal

__all__ = [
    "FORMAT",
    "counted",
    "folded",
    "notes_of",
    "sentences",
    "to_html",
    "to_json",
    "to_junit",
    "to_terminal",
]
