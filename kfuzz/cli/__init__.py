"""The command line: one module per verb. Each module only parses, prints and exits."""
