"""Generates and verifies corpora of log segments: workload → plan → segment bytes. docs/corpora.md is the guide."""
