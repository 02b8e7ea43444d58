"""A browser for the terminal: batches, fields and bytes side by side (``kfuzz browse``)."""
