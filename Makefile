# make demo      set everything up and run the whole road on real data
# make test      set everything up, then the checks and the tests (minutes)
# make test-all  the same, then the slow tests and a random exploration of the properties
# make docs      build the guides and the API reference to site/index.html
# make dist      the sdist and the wheel, in dist/
# make sbom      what is installed in .venv, as CycloneDX, in dist/sbom.json
# A machine needs python3.11 or newer with pip, nothing else. `make setup EXTRAS=test,serve` installs other extras too.

PYTHON ?= python3
EXTRAS ?= test
BIN := .venv/bin
READY := .venv/.ready
DOCS := .venv/.docs
SBOM := .venv/sbom

export MLFLOW_DISABLE_TELEMETRY := true
export PIP_DISABLE_PIP_VERSION_CHECK := 1
unexport PYTHONDONTWRITEBYTECODE # processes that tests start would compile everything again

PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal

.NOTPARALLEL:
.PHONY: setup demo check test test-slow test-all bench docs pictures dist sbom clean

# uv is several times faster than pip, and takes pip's settings from the environment alone. Where it does not come
# through (behind a mirror that only pip's own file names), pip installs.
export UV_SYSTEM_CERTS := true
ifdef PIP_INDEX_URL
export UV_DEFAULT_INDEX := $(PIP_INDEX_URL)
endif
ifdef PIP_FIND_LINKS
export UV_FIND_LINKS := $(PIP_FIND_LINKS)
endif
INSTALL = $(BIN)/uv pip install -q --python $(BIN)/python -c constraints.txt -e '.[$(1)]' \
	|| $(BIN)/pip install -q -c constraints.txt -e '.[$(1)]'

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@echo "setting up .venv (once, a minute or two)"
	$(PYTHON) -m venv .venv
	$(BIN)/pip install -q -c constraints.txt uv
	$(call INSTALL,$(EXTRAS))
	touch $@

demo: $(READY)
	$(BIN)/streamgp demo

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --num-workers 2
	$(BIN)/lint-imports

# Two workers of one thread each: torch would otherwise start a thread per core in both.
test: check
	$(PYTEST) -q -m "not slow"

# What `make test` leaves out, and every property again on new examples; without -q the seed comes first.
test-slow: $(READY)
	HYPOTHESIS_PROFILE=explore $(PYTEST) --timeout 1200 -m "slow or hypothesis"

test-all: test test-slow

# Strict: a broken link or reference fails. Nothing is fetched when the pages are built or read.
docs: $(DOCS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

$(DOCS): $(READY)
	$(call INSTALL,docs)
	touch $@

# The README's pictures, from a run of the demo; needs chromium.
pictures: $(READY)
	$(BIN)/python docs/make_pictures.py

# The wheel is built from the sdist: what is missing there is missing here.
dist: $(READY)
	rm -rf dist
	$(BIN)/uv build --no-build-isolation --python $(BIN)/python

# The tool has an environment of its own: it is no part of the bill.
$(SBOM):
	$(PYTHON) -m venv $(SBOM)
	$(SBOM)/bin/pip install -q cyclonedx-bom==7.5.0

sbom: $(READY) $(SBOM)
	mkdir -p dist
	$(SBOM)/bin/cyclonedx-py environment $(BIN)/python --pyproject pyproject.toml --output-reproducible -o dist/sbom.json

# Every benchmark writes its JSON, then the results pages are written from it.
bench: export BENCHMARK_RESULTS := docs/results/data
bench: $(READY)
	$(call INSTALL,bench)
	@status=0; for file in benchmarks/[a-z]*.py; do echo "== $$file"; $(BIN)/python $$file || status=1; done; \
	$(BIN)/python docs/make_results.py || status=1; exit $$status

clean:
	rm -rf .venv build dist site *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
