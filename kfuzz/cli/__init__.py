"""The command line: one module per verb; it parses, prints and exits, and holds no logic."""
