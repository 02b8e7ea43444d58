"""The readers: ``reader`` walks batches for every role, ``roles`` holds what a broker and a log ask."""
