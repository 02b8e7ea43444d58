# Compiled helpers for compiled callers: nothing here is visible from Python.
