"""Compares the CPU time of kfuzz with other implementations; ``python -m benchmarks`` prints the ratios.

``mixed`` is the set of records. ``kfuzz_work``, ``call_work`` and ``peers`` are the work that each library does with
it. ``message_set``, ``message_work`` and ``message_peers`` are the same for messages. ``paths`` lists the contestants
of each path. ``remote`` starts a process for each contestant; ``contestant`` runs in it. ``measure`` runs the rounds.
``report`` makes the table, the CSV file and the chart. ``generation_work``, ``corpus_work``, ``arrow_work`` and
``process_work`` are for files and corpora. May import all of kfuzz; nothing imports it.
"""
