"""The testee protocol, the runner, expected outcomes, the matrix and its reports. May import vectors/ and records/."""
