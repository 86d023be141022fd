# `make demo` and `make test` need Python >= 3.11 and pip, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test chaos lint bench bench-planning clean
.DELETE_ON_ERROR:

$(VENV)/installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "expected Python 3.11 or newer, found $$($(PYTHON) --version 2>&1); set PYTHON=..." >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	touch $@

# Exit code 1 of the ingest means that some files were rejected: the hub has a broken one on purpose.
demo: $(VENV)/installed
	rm -rf .demo
	$(BIN)/python jobs/ingest.py --hub examples/hub --store .demo/store || test $$? -eq 1
	$(BIN)/python examples/restore_all.py --store .demo/store --hub examples/hub --to .demo/restored
	$(BIN)/python analytics/savings.py --store .demo/store

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/python -m pytest

# Workers, nodes, drivers and servers that die, on a cluster of two nodes: half an hour.
chaos: $(VENV)/installed
	$(BIN)/python -m pytest -m chaos -v $(ARGS)

# Beside its peers, in an environment of its own: zipnn brings torch along.
.venv-bench/installed: pyproject.toml
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	touch $@

# make bench ARGS="--hub ~/hub --pairs org/tuned=org/base"
bench: .venv-bench/installed
	.venv-bench/bin/python -m benchmarks $(ARGS)

# The paper's evaluation of planning, on a hub of yours: tables and figures of benchmarks/RESULTS.md.
# make bench-planning ARGS="--hub ~/hub"
bench-planning: $(VENV)/installed
	$(BIN)/python -m benchmarks.planning $(ARGS)

clean:
	rm -rf $(VENV) .venv-bench .demo dist
