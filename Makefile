# `make demo` and `make test` set up .venv with all packages. They need only Python 3.11+ and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# The core, which needs 95 % coverage: methods, client, engines, partition, checkpoints and traffic.
CORE   := src/fedhv/problem/*,src/fedhv/protocol/*,src/fedhv/methods/*,src/fedhv/engines/*,src/fedhv/runs/checkpoint.py

# Triton kernels and their launcher run only on a GPU; benchmarks/gpu_kernels.py checks them there.
ON_GPU := src/fedhv/engines/kernels/convolution.py,src/fedhv/engines/kernels/normalisation.py,$\
          src/fedhv/engines/kernels/halves.py,src/fedhv/engines/kernels/weight_gradients.py,$\
          src/fedhv/engines/kernels/launch.py,src/fedhv/engines/kernels/starting.py,$\
          src/fedhv/engines/kernels/activation_kernels.py,src/fedhv/engines/kernels/sums.py

.PHONY: help demo test test-slow coverage docs package package-check lint format clean

help:
	@echo "make demo      the four methods on the embedded benchmark, a table and a page"
	@echo "make test      the tests, without the slow ones"
	@echo "make test-slow the slow tests: real federations, clusters, notebooks and whole sites"
	@echo "make coverage  all tests, with line and branch coverage; the core has to reach 95 %"
	@echo "make docs      the documentation, into site/"
	@echo "make package   wheel and sdist, into dist/"
	@echo "make package-check  install wheel and sdist in clean environments, with every extra (takes long)"
	@echo "make lint      ruff, mypy and the layers of imports"
	@echo "make format    format the code with ruff"
	@echo "make clean     remove the environment and caches"

$(VENV)/.runtime: pyproject.toml constraints.txt
	@echo "Setting up $(VENV) (torch is large: this takes a minute or two) ..."
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "fedhv needs Python 3.11 or newer; set PYTHON=..."; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) -e '.[all]'
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime
	@echo "Adding the packages for tests and documentation (a minute or two) ..."
	@$(PIP) -e '.[dev]'
	@touch $@

demo: $(VENV)/.runtime
	@$(BIN)/fedhv compare digits --seeds 0 --out runs/demo
	@$(BIN)/fedhv report runs/demo --no-figures --quiet
	@echo "The page of the study, to open in a browser: runs/demo/report/index.html"

# The tests start many processes, which read compiled modules even where the environment says not to write them.
test test-slow coverage: export PYTHONDONTWRITEBYTECODE =

test: $(VENV)/.dev
	@$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

test-slow: $(VENV)/.dev
	@$(BIN)/python -m pytest -m slow

coverage: $(VENV)/.dev
	@$(BIN)/python -m pytest -n 2 --dist worksteal --hypothesis-profile thorough --cov --cov-report=term:skip-covered
	@echo "The core, by lines and branches:"
	@$(BIN)/python -m coverage report --include='$(CORE)' --omit='$(ON_GPU)' --show-missing --fail-under=95

docs: $(VENV)/.dev
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "The documentation, to open in a browser: site/index.html"

package: $(VENV)/.dev
	@$(BIN)/python -m hatchling build --clean

package-check: package
	@$(BIN)/python .ci/packages.py

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
