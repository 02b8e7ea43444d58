"""The vector model, its recipes, build and lint. May import records/ and wire/."""
