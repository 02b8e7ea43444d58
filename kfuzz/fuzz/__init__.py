"""Fuzz targets, the instrumented build, the campaign runner; the only folder that imports atheris.

``targets`` is the table of what can be fuzzed, ``build`` makes the instrumented copy of the compiled modules,
``harness`` is the process that atheris runs in, and ``campaign.run`` drives all of them.
"""
