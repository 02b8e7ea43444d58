"""Fuzz targets, the instrumented build and the campaign runner. Only this folder imports atheris.

``targets`` is the table of fuzz targets, ``building`` makes the instrumented copy of the compiled modules, ``harness``
is the process that atheris runs in, whose ``recorder`` lets it continue and whose modules ``instrumented`` keeps.
``campaign.run`` drives them: ``libfuzzer`` is one such process, ``causes`` makes deviations and causes of what breaks a
target, ``other_reader`` asks a testee, and ``shrinking`` makes inputs simpler in a process of its own (``trial``).
``kept`` opens an input that was kept. ``reproducing`` runs given inputs without fuzzing, and ``exporting`` serves other
people's fuzzers. ``peers`` are other people's readers: ``peer_building`` compiles them, and ``forked`` runs each input
in a child process first.

``clients`` are campaigns against whole clients, without atheris: ``conversations`` through a proxy, with a ``driver``.
"""
