"""Makes wrong changes on purpose, which the tests must notice: ``python -m tools.mutants``, or ``make mutants``."""
