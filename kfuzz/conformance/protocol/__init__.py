"""The testee protocol: its words, a testee as a process, and which testees there are."""
