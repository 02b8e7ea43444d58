"""Workload → plan → segment bytes. docs/corpora.md is the guide."""
