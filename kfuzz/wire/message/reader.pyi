# This module has nothing for Python callers.
