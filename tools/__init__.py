"""Scripts of this repository for `make lint`, `make mutants` and `make release`. The package does not contain them."""
