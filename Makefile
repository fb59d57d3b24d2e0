# make demo: from nothing to a report. Everything else is for those who change the code.
# PIP_ARGS is handed to pip, e.g. PIP_ARGS="--extra-index-url https://download.pytorch.org/whl/cpu"
VENV ?= .venv
BIN := $(VENV)/bin
EXTRAS ?= lm,dev,eval
PIP_ARGS ?=
# KNOWN="known and not long" leaves out the longest
KNOWN ?= known
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)

.PHONY: demo demo-real test known studies lint bench mutants clean

demo: $(VENV)/.installed
	$(BIN)/stemma demo --timings

demo-real: $(VENV)/.installed
	$(BIN)/stemma demo --real --timings

test: $(VENV)/.installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not known" -n 2 --dist loadfile --durations=10

known: $(VENV)/.installed
	$(BIN)/python -m pytest -m "$(KNOWN)" --durations=10

# studies too long for CI, from nothing to a page
studies: $(VENV)/.installed
	test -e runs/imprint-windows/stemma.yaml || $(BIN)/stemma init runs/imprint-windows --preset imprint-windows
	$(BIN)/stemma run runs/imprint-windows/stemma.yaml --out runs/imprint-windows/run --timings

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PYTHONPATH=src $(BIN)/lint-imports

bench: $(VENV)/.installed
	for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python "$$script" || exit 1; done

mutants: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) -c constraints.txt -e '.[mutants]'
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.mutants --sample 300 --seed 0

$(VENV)/.installed: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11 or newer was found. stemmatics needs one. \
	Install it (Debian: apt install python3.11 python3.11-venv; macOS: brew install python@3.12) or type make PYTHON=/path/to/python."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) -c constraints.txt -e '.[$(EXTRAS)]'
	@touch $@

clean:
	rm -rf $(VENV) runs dist build
