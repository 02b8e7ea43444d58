"""A run as JUnit XML, for continuous integration."""

from __future__ import annotations

from xml.etree import ElementTree

from kfuzz.conformance.judge.compare import Case
from kfuzz.conformance.judge.matrix import Column, Run
from kfuzz.text import printable


def to_junit(run: Run) -> bytes:
    """The run as JUnit XML: a test suite per testee, a test per case. Expected outcomes other than pass are skipped."""
    root = ElementTree.Element("testsuites", name="kfuzz conform")
    for testee in run.testees:
        suite = ElementTree.SubElement(root, "testsuite", name=printable(testee.label))
        if testee.broken:
            _junit_test(suite, testee.label, "handshake", "failure", testee.broken)
        if testee.stopped:
            _junit_test(suite, testee.label, "budget", "failure", testee.stopped)
        for case in [] if testee.broken else run.cases:
            _junit_case(suite, testee, case)
        for sentence in testee.stale:
            _junit_test(suite, testee.label, "expected outcomes", "failure", sentence)
        suite.set("tests", str(len(suite)))
        suite.set("failures", str(len(suite.findall("./testcase/failure"))))
        suite.set("skipped", str(len(suite.findall("./testcase/skipped"))))
        suite.set("errors", "0")
    ElementTree.indent(root)
    document: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _junit_case(suite: ElementTree.Element, testee: Column, case: Case) -> None:
    standing, cell, shown = testee.standings[case.key], testee.cells[case.key], testee.shown(case.key)
    family, _, name = case.vector.id.rpartition("/")
    classname, name = f"{testee.label}.{family.replace('/', '.')}", f"{name} [{case.role}]"
    if testee.hides(case.key):
        tag = "failure" if standing.status == "unexpected" else "skipped"
        _junit_test(suite, classname, name, tag, shown)
    elif standing.status == "unexpected":
        _junit_test(suite, classname, name, "failure", f"{shown}: {cell.text} ({standing.reason})")
    elif shown == "pass":
        _junit_test(suite, classname, name)
    else:
        reason = standing.reason or cell.text
        _junit_test(suite, classname, name, "skipped", f"{shown}: {reason}" if reason else shown)


def _junit_test(suite: ElementTree.Element, classname: str, name: str, tag: str = "", message: str = "") -> None:
    # XML 1.0 cannot contain control characters, not even escaped.
    test = ElementTree.SubElement(suite, "testcase", classname=printable(classname), name=printable(name))
    if tag:
        ElementTree.SubElement(test, tag, message=printable(message))
