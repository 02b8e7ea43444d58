"""Shows which lines of the compiled code the tests and corpora run: ``python -m tools.coverage``, ``make coverage``."""
