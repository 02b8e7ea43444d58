"""Compares the CPU time of kfuzz with other implementations; ``python -m benchmarks`` prints the ratios.

docs/benchmarks.md says what each module does. May import all of kfuzz; nothing imports it.
"""
