"""Fuzz targets, the instrumented build and the campaign runner. Only this folder imports atheris.

``targets`` is the table of fuzz targets, ``building`` makes the instrumented copy of the compiled modules, ``harness``
is the process that atheris runs in, with a ``recorder`` that lets it go on. ``campaign.run`` drives them: ``running``
is one such process, ``faults`` groups what breaks a target, ``truth`` asks another reader, ``shrinking`` makes inputs
simpler. ``once`` runs given inputs without fuzzing, and ``exporting`` serves other people's fuzzers.
"""
