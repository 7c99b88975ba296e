# make demo      set everything up and run the whole road on real data
# make test      set everything up, then the checks and the tests (minutes)
# make test ROOM=kernels  the tests and doctests of one room (seconds); several: ROOM="kernels cli"
# make setup     set .venv up with what `streamgp` needs; `make setup EXTRAS=serve,formats` adds extras to it
# make test-all  `make test`, then the slow tests and a random exploration of the properties
# make docs      build the guides and the API reference to site/index.html
# make dist      the sdist and the wheel, in dist/
# make sbom      what is installed in .venv, as CycloneDX, in dist/sbom.json
# A machine needs python3.11 or newer with pip, nothing else. Every target first adds what it needs to .venv.

PYTHON ?= python3
EXTRAS ?=
BIN := .venv/bin
READY := .venv/.ready
SBOM := .venv/sbom

export MLFLOW_DISABLE_TELEMETRY := true
export PIP_DISABLE_PIP_VERSION_CHECK := 1
unexport PYTHONDONTWRITEBYTECODE # processes that tests start would compile everything again

# Two workers of one thread each: torch would otherwise start a thread per core in both.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal

.NOTPARALLEL:
.PHONY: setup demo check test test-slow test-all bench docs pictures dist sbom clean

BEGUN := $(shell date +%s)
told = @echo "-- $(1) after $$(($$(date +%s) - $(BEGUN))) s"

# uv is several times faster than pip, and takes pip's settings from the environment alone. Where it does not come
# through (behind a mirror that only pip's own file names), pip installs.
export UV_SYSTEM_CERTS := true
ifdef PIP_INDEX_URL
export UV_DEFAULT_INDEX := $(PIP_INDEX_URL)
endif
ifdef PIP_FIND_LINKS
export UV_FIND_LINKS := $(PIP_FIND_LINKS)
endif
INSTALL = $(BIN)/uv pip install -q --python $(BIN)/python -c constraints.txt -e '.$(1)' \
	|| $(BIN)/pip install -q -c constraints.txt -e '.$(1)'

comma := ,
extras = $(addprefix .venv/.extra-,$(subst $(comma), ,$(1)))
SETUP := $(READY) $(call extras,$(EXTRAS))

setup: $(SETUP)
	@echo ".venv is ready$(if $(EXTRAS),$(comma) with $(EXTRAS)): source .venv/bin/activate"

$(READY): pyproject.toml constraints.txt
	@echo "setting up .venv (once, a minute or two)"
	$(PYTHON) -m venv .venv
	$(BIN)/pip install -q -c constraints.txt uv
	$(call INSTALL)
	@touch $@
	$(call told,set up)

# An extra of pyproject.toml: added once, and again when that changes.
.venv/.extra-%: $(READY)
	@sed -n '/^\[project.optional-dependencies\]/,/^\[project.scripts\]/s/^\([a-z0-9-]*\) = .*/\1/p' pyproject.toml \
		| grep -qx '$*' || { echo "there is no extra '$*' in pyproject.toml" >&2; exit 2; }
	@echo "adding the extra '$*' to .venv"
	$(call INSTALL,[$*])
	@touch $@
	$(call told,set up)

demo: $(SETUP)
	$(BIN)/streamgp demo

check: $(SETUP) $(call extras,test)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --num-workers 2
	$(BIN)/lint-imports
	$(call told,checked)

ifdef ROOM
test: $(SETUP) $(call extras,test)
	@paths=$$($(BIN)/python tests/rooms.py $(ROOM)) && OMP_NUM_THREADS=1 $(BIN)/pytest -q -m "not slow" $$paths
else
test: check
	$(PYTEST) -q -m "not slow"
endif
	$(call told,tested)

# What `make test` leaves out, and every property again on new examples; without -q the seed comes first.
test-slow: $(SETUP) $(call extras,test test-slow)
	HYPOTHESIS_PROFILE=explore $(PYTEST) --timeout 1200 -m "slow or hypothesis or needs"

test-all: test test-slow

# Strict: a broken link or reference fails. Nothing is fetched when the pages are built or read.
docs: $(SETUP) $(call extras,docs)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

# The README's pictures, from a run of the demo; needs chromium.
pictures: $(SETUP) $(call extras,test-slow)
	$(BIN)/python docs/make_pictures.py

# The wheel is built from the sdist: what is missing there is missing here.
dist: $(SETUP) $(call extras,test)
	rm -rf dist
	$(BIN)/uv build --no-build-isolation --python $(BIN)/python

# The tool has an environment of its own: it is no part of the bill.
$(SBOM):
	$(PYTHON) -m venv $(SBOM)
	$(SBOM)/bin/pip install -q cyclonedx-bom==7.5.0

sbom: $(SETUP) $(SBOM)
	mkdir -p dist
	$(SBOM)/bin/cyclonedx-py environment $(BIN)/python --pyproject pyproject.toml --output-reproducible -o dist/sbom.json

# Every benchmark writes its JSON, then the results pages are written from it.
bench: export BENCHMARK_RESULTS := docs/results/data
bench: $(SETUP) $(call extras,test bench)
	@status=0; for file in benchmarks/[a-z]*.py; do echo "== $$file"; $(BIN)/python $$file || status=1; done; \
	$(BIN)/python docs/make_results.py || status=1; exit $$status

clean:
	rm -rf .venv build dist site *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
