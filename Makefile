# SPDX-License-Identifier: BSD-2-Clause
#
#   make bench         set up, run bench_page_pool_simple on the pool, print the table
#   make test          set up, pass the tests
#   make soak          10^9 operations with everything on: minutes; OPERATIONS=1e8, SEED=2
#   make bench-peers   the same loops on DPDK's pools and on malloc (needs their packages)
#   make lint          formatting, types, warnings
#
# Everything is installed into .venv; PYTHON=python3.12 builds it with another Python.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BUILD := build
# meson looks for ninja and cython in PATH; those of the virtual environment will do.
MESON := PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/meson
LOOPS ?= 10000000
OPERATIONS ?= 1e9
SEED ?= 1

SOURCES := $(shell find src csrc include tests/c benchmarks -type f \
             ! -name '*.pyc' 2>/dev/null) meson.build meson.options pyproject.toml

.PHONY: bench test test-c test-python soak bench-peers lint clean tools

bench: $(VENV)/.installed
	$(BIN)/pagepool bench simple --loops $(LOOPS)

test: test-c test-python

test-c: $(BUILD)/build.ninja
	$(MESON) test -C $(BUILD) --print-errorlogs

test-python: $(VENV)/.test-installed
	$(BIN)/python -m pytest -n auto --dist worksteal

soak: $(BUILD)/build.ninja
	$(MESON) compile -C $(BUILD) tests/c/soak
	$(BUILD)/tests/c/soak --operations $(OPERATIONS) --seed $(SEED)

bench-peers: $(VENV)/.test-installed $(BUILD)/build.ninja
	$(MESON) configure $(BUILD) -Dpeers=enabled
	$(MESON) compile -C $(BUILD)
	$(BIN)/python benchmarks/run_peers.py --build $(BUILD)

lint: $(VENV)/.test-installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	clang-format --dry-run --Werror $$(git ls-files '*.c' '*.h')

# What the compiler and Python need, named before pip drowns it in pages of output.
tools:
	@missing=; \
	for need in $(PYTHON):python3 cc:gcc; do \
	  command -v $${need%%:*} >/dev/null || missing="$$missing $${need##*:}"; \
	done; \
	if command -v $(PYTHON) >/dev/null; then \
	  $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || missing="$$missing python3-venv"; \
	  $(PYTHON) -c 'import sysconfig, pathlib, sys; \
	    sys.exit(not (pathlib.Path(sysconfig.get_path("include")) / "Python.h").exists())' \
	    || missing="$$missing python3-dev"; \
	  $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo "$(PYTHON) is older than 3.11: use another with PYTHON=..."; exit 1; }; \
	fi; \
	printf '#include <stdio.h>\n' | cc -E - >/dev/null 2>&1 \
	  || { command -v cc >/dev/null && missing="$$missing libc6-dev"; }; \
	if [ -n "$$missing" ]; then \
	  echo "missing:$$missing; install with: apt-get install$$missing"; exit 1; \
	fi

# An order-only prerequisite, so that looking at the tools does not make everything old.
$(VENV)/.created: | tools
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.installed: $(VENV)/.created $(SOURCES)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check .
	touch $@

# The package is built once: with what the tests need it is installed as well.
$(VENV)/.test-installed: $(VENV)/.created $(SOURCES)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check '.[test]'
	touch $(VENV)/.installed $@

$(BUILD)/build.ninja: $(VENV)/.test-installed
	$(MESON) setup --reconfigure $(BUILD) -Dpython=disabled --werror >/dev/null \
	  || $(MESON) setup $(BUILD) -Dpython=disabled --werror

clean:
	rm -rf $(VENV) $(BUILD)
