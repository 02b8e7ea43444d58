"""Fuzz targets, the instrumented build and the campaign runner. Only this folder imports atheris.

``targets`` is the table of fuzz targets, ``building`` makes the instrumented copy of the compiled modules, ``harness``
is the process that atheris runs in, and ``campaign.run`` drives all of them.
"""
