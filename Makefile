# setup · demo · quick · test · fuzz · check · bench · results · docs · pins · clean
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: setup demo quick test fuzz check bench results docs pins clean

setup: $(READY)

# the whole set-up: a virtual environment with the exact versions of constraints.txt
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11, 4) and "zetamix needs Python 3.11.4 or newer, got " + sys.version.split()[0] + ". Name one with: make PYTHON=python3.12 ...")'
	@echo "Setting up $(VENV): PyTorch is several gigabytes, this can take a few minutes once."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -q -c constraints.txt pip hatchling editables
	$(BIN)/python -m pip install -c constraints.txt --no-build-isolation -e '.[all,dev]'
	@touch $@

demo: $(READY)
	$(BIN)/zetamix compare --data digits --out out/demo

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

# the core and the units, without kills, clusters, databases and browsers: in about 90 s
quick: check
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

# worksteal: tests of a file mostly stay in one worker, and with them what is slow to set up
test: check
	$(BIN)/python -m pytest -n 2 --dist worksteal

# the tests marked `fuzz`, round after round, each with another seed: make fuzz MINUTES=600
MINUTES ?= 10
fuzz: $(READY)
	$(BIN)/python tests/fuzz.py --minutes $(MINUTES)

bench: $(READY)
	$(BIN)/python -m benchmarks

# render every figure, table and page from the committed records, and the tables of README and docs
results: $(READY)
	$(BIN)/python -m paper page --out results
	$(BIN)/python -m results.render
	$(BIN)/python -m benchmarks.render

# the documentation: out/site/index.html opens without a server and without a network
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# write down what is installed now as the versions everyone gets
pins: $(READY)
	$(BIN)/python -m pip freeze --all --exclude-editable > constraints.txt

clean:
	rm -rf $(VENV) out build dist .mypy_cache .ruff_cache .hypothesis
