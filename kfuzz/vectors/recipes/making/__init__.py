"""Builders of bytes, in which any part can be wrong. They know nothing of vectors and verdicts."""
