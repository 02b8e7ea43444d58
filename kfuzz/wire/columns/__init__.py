"""Rows to Arrow's buffers (``reader``), and Arrow's buffers to batches (``writer``)."""
