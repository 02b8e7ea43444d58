"""Which field each byte belongs to and what it means: for dumps, the fuzzer and the vectors."""
