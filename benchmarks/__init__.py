"""Side-by-side runs against other implementations, in CPU time; ``python -m benchmarks`` prints the ratios.

``mixed`` is the set that records are measured on, ``kfuzz_work``, ``call_work`` and ``peers`` what each library does
with it; ``message_set``, ``message_work`` and ``message_peers`` are the same for messages. ``paths`` says who meets
whom, ``remote`` starts a process for each contestant and ``contestant`` runs in it. ``measure`` has the rounds,
``report`` the table, the CSV file and the chart. May import all of kfuzz; nothing imports it.
"""
