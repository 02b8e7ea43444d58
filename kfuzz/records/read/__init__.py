"""The readers: ``reader`` has the calls for every role, and ``walk`` the Python part of the loop.

``limits`` and ``topic`` are arguments of the calls.
"""
