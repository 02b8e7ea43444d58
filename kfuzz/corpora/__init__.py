"""Workload → plan → segment bytes. May import records/ and wire/; docs/corpora.md is the guide."""
