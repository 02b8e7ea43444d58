"""The testee protocol: its messages, a testee as a process, and the list of testees."""
