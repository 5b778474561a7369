# Everything is set up inside this checkout (.uv, .venv); nothing global. A plain system needs: make git python3-venv
UV_VERSION := 0.13.9
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.DELETE_ON_ERROR:
.PHONY: setup demo test check clean

setup: $(READY)

# uv comes from PyPI by a pip of its own, so that no installer script runs and the version is ours.
.uv/bin/uv: Makefile
	@$(PYTHON) -m venv --clear .uv || { echo "agentloop: $(PYTHON) cannot make a virtual environment; on Debian or Ubuntu: apt install python3-venv" >&2; exit 1; }
	.uv/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@touch $@

$(READY): .uv/bin/uv pyproject.toml uv.lock
	@echo "setting up .venv (a minute or two)"
	@.uv/bin/uv sync --quiet --locked --all-extras --compile-bytecode
	@touch $@

# A real model, real problems, a real sandbox: fetches what is missing (0.5 GB of weights) and prints a table.
# --sandbox any: Docker, else namespaces, else, with a notice, the reduced level.
demo: $(READY)
	$(BIN)/agentloop run experiments/quickstart.toml --sandbox any --out runs/quickstart

# Names what was skipped and why. AGENTLOOP_REQUIRE=docker,local-model turns those skips into failures.
# ARGS goes to pytest: make test ARGS="tests/sandbox -k timeout"
test: $(READY)
	$(BIN)/python -m pytest $(ARGS)

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# What make and its tools wrote here. Your runs stay.
clean:
	rm -rf .uv .venv dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage
	find agentloop graphs tests -name __pycache__ -prune -exec rm -rf {} +
