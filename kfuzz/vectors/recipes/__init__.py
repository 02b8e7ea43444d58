"""One module per theme of the golden suite; each makes its vectors from values through ``builder``. May import records/ and wire/."""
