"""Builders of bytes; any part can be made wrong. They know nothing about vectors and verdicts."""
