"""One module per theme of the golden suite, each making vectors from values through ``builder``. May import wire/."""
