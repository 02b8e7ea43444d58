"""Side-by-side runs against other implementations, in CPU time; ``python -m benchmarks`` prints the ratios.

``mixed`` is the set that everything is measured on, ``kfuzz_work`` and ``peers`` what each library does with it,
``paths`` who meets whom, ``measure`` the rounds, ``report`` the table, the CSV file and the chart. May import all of
kfuzz; nothing imports it.
"""
