"""Where every byte stands and what it means, for dumps, the fuzzer and the vectors."""
