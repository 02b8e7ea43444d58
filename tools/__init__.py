"""What `make lint` and `make mutants` run besides kept tools; nothing here is part of the package."""
