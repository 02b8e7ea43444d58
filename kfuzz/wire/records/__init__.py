"""Records and batches. ``record_batch`` (magic 2) and ``message_set`` (magic 0 and 1) have one parse loop each.

``framing`` finds where a batch ends; ``batch_writer`` writes magic 2.
"""
