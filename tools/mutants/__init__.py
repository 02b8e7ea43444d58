"""Wrong changes, made on purpose, that the tests must notice: ``python -m tools.mutants``, or ``make mutants``."""
