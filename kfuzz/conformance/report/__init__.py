"""Reports of a run: JSON, JUnit XML, HTML, and the matrix for a terminal.

May import ``kfuzz.conformance.judge`` and ``kfuzz.conformance.protocol``; jinja2 and rich are loaded when needed.
"""
