"""Workload → plan → segment bytes. May import records/ and wire/."""
