# `make demo` and `make test` set up everything they need in .venv, from nothing but Python 3.11+ and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# What must stay covered: the method, the client, the engines, who holds what, what is kept and counted.
CORE   := src/fedhv/problem/*,src/fedhv/protocol/*,src/fedhv/methods/*,src/fedhv/engines/*,src/fedhv/runs/checkpoint.py

# Triton kernels and what launches them run on a GPU alone; benchmarks/gpu_kernels.py checks them there.
ON_GPU := src/fedhv/engines/kernels/convolution.py,src/fedhv/engines/kernels/normalisation.py,$\
          src/fedhv/engines/kernels/launch.py

.PHONY: help demo test coverage docs package lint format clean

help:
	@echo "make demo      the four methods on the embedded benchmark, a table and a page"
	@echo "make test      the tests"
	@echo "make coverage  the tests, with line and branch coverage; the core has to reach 95 %"
	@echo "make docs      the documentation, into site/"
	@echo "make package   wheel and sdist, into dist/"
	@echo "make lint      ruff, mypy and the layers of imports"
	@echo "make format    let ruff format the code"
	@echo "make clean     remove the environment and caches"

$(VENV)/.runtime: pyproject.toml constraints.txt
	@echo "Setting up $(VENV) (torch is large: this takes a minute or two) ..."
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "fedhv needs Python 3.11 or newer; set PYTHON=..."; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) -e '.[all]'
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime
	@echo "Adding what tests and documentation need (a minute or two) ..."
	@$(PIP) -e '.[dev]'
	@touch $@

demo: $(VENV)/.runtime
	@$(BIN)/fedhv compare digits --seeds 0 --out runs/demo
	@$(BIN)/fedhv report runs/demo --no-figures --quiet
	@echo "Its page, to open in a browser: runs/demo/report/index.html"

test: $(VENV)/.dev
	@$(BIN)/python -m pytest -n 2

coverage: $(VENV)/.dev
	@$(BIN)/python -m pytest -n 2 --cov --cov-report=term:skip-covered
	@echo "The core, by lines and branches:"
	@$(BIN)/python -m coverage report --include='$(CORE)' --omit='$(ON_GPU)' --show-missing --fail-under=95

docs: $(VENV)/.dev
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "The documentation, to open in a browser: site/index.html"

package: $(VENV)/.dev
	@$(BIN)/python -m hatchling build

lint: $(VENV)/.dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --config pyproject.toml

format: $(VENV)/.dev
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage dist site
