# Two commands matter: `make demo` and `make test`. Both install what is missing first; a second run installs nothing.
SHELL := /bin/bash
# Compiled Python is kept, whatever the environment says: every test of the command line starts it anew.
unexport PYTHONDONTWRITEBYTECODE
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.PHONY: help demo test check unit cluster shared-cluster quiet rust torture search setup test-machine test-releases bench-overhead bench-startup bench-verdicts docs pictures lock clean

PYTHON ?= python3
VENV := $(CURDIR)/.venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/.stamps
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
CORE_SOURCES := Cargo.toml Cargo.lock pyproject.toml $(shell find crates -name '*.rs' -o -name Cargo.toml | grep -v '/target/')
JOBS ?= $(shell nproc)
# Workers that each have a lab, some of them two: a small lab takes about 0.7 GB.
LABS ?= 5

help:  ## Show this list.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

demo:  ## Start a real Ceph, measure it layer by layer, write report.html, take it down.
	@$(MAKE) --no-print-directory --jobs=3 setup
	@$(BIN)/bathy demo --output report.html

test:  ## Formatters, linters, types, layers; Rust, Python and real Ceph 16.2: 25 minutes on two quiet processors.
	@scripts/part set-up $(MAKE) --no-print-directory --jobs=3 $(STAMPS)/core $(STAMPS)/dev
	@# Tests on a real Ceph wait most of the time; the others take what they leave of two processors.
	@$(MAKE) --no-print-directory --jobs=4 --output-sync=recurse shared-cluster nice-check nice-rust nice-unit JOBS=2
	@scripts/part quiet $(MAKE) --no-print-directory quiet

nice-check nice-unit nice-rust: nice-%: $(STAMPS)/core $(STAMPS)/dev
	@scripts/part $* nice -n 5 $(MAKE) --no-print-directory $*

check: $(STAMPS)/core $(STAMPS)/dev  ## Formatters, linters, types and import layers.
	$(BIN)/ruff format --check python tests benchmarks docs
	$(BIN)/ruff check python tests benchmarks docs
	$(BIN)/mypy
	$(BIN)/lint-imports
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings

rust: $(STAMPS)/core $(STAMPS)/dev  ## Tests of the Rust crates, and what runs their programs.
	@# cargo would look for the job server of a make that keeps it to itself.
	env -u MAKEFLAGS PROPTEST_RNG_SEED=1 cargo test --locked --workspace
	$(BIN)/pytest tests/programs

torture: export BATHY_TORTURE_OPS = 1000000
torture: export BATHY_TORTURE_CRASHES = 10000
torture: export BATHY_TORTURE_FLIPS = 10000
torture: export BATHY_TORTURE_KILLS = 300
torture: export BATHY_TORTURE_FAULTS = 1000
torture: export BATHY_TORTURE_SCHEDULES = 100000
torture: $(STAMPS)/system  ## The cache's tests in their long forms, as root: hours. TMPDIR is where; fsx, pjdfstest, fio if installed.
	@echo "a million operations each, 10,000 power cuts, 10,000 images with flipped bits, 300 kills, 100,000 schedules: some hours"
	cargo test --locked -p bathy-cache -p bathyd -- --nocapture

unit: $(STAMPS)/core $(STAMPS)/dev  ## Python tests that need no Ceph.
	$(BIN)/pytest tests/unit -m "not machine" -n $(JOBS) --durations=25

cluster: shared-cluster  ## Tests on a real Ceph that labs start, five at once; then those that need a quiet machine.
	@$(MAKE) --no-print-directory quiet

shared-cluster: $(STAMPS)/core $(STAMPS)/dev
	@scripts/part cluster $(BIN)/pytest tests/cluster -m "not releases and not machine and not quiet" \
		-n $(LABS) --dist loadscope --no-loadscope-reorder --durations=25

quiet: $(STAMPS)/core $(STAMPS)/dev
	$(BIN)/pytest tests/cluster -m "quiet and not releases" --durations=25

search: $(STAMPS)/core $(STAMPS)/dev  ## Property tests on inputs that no run has seen; `make test` repeats the same ones.
	BATHY_SEARCH=1 $(BIN)/pytest -m "not cluster and not releases" -n $(JOBS)
	cargo test --locked --workspace

test-machine: $(STAMPS)/core $(STAMPS)/dev  ## A machine with systemd, ceph-volume and a cache, killed and cut off: ten minutes, in QEMU.
	$(BIN)/pytest -m machine

test-releases: $(STAMPS)/core $(STAMPS)/dev  ## The lab and the ladder on Ceph 16.2, 18.2 and 20.2.
	$(BIN)/pytest -m cluster -k release

bench-overhead: setup $(STAMPS)/dev  ## What measuring costs: see benchmarks/overhead.
	$(BIN)/python -m benchmarks.overhead

bench-startup: setup  ## What a start costs, as a multiple of `import typer`.
	$(BIN)/python -m benchmarks.startup

bench-verdicts: setup $(STAMPS)/dev  ## Printed verdicts against injected causes: see benchmarks/verdicts.
	$(BIN)/python benchmarks/verdicts

docs: $(STAMPS)/core $(STAMPS)/packages  ## Regenerate docs/reference from the code, and the crates in NOTICE.
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/notice.py

pictures: setup $(STAMPS)/dev  ## Make the pictures of README and guides from a demo: six minutes; BATHY_WORKSPACE has its runs.
	$(BIN)/python docs/pictures.py

lock:  ## Resolve the Python dependencies anew; needs uv.
	uv pip compile pyproject.toml --group dev --generate-hashes --universal --python-version 3.11 \
		--no-emit-index-url --no-header --quiet --output-file requirements.lock
	cargo update
	$(BIN)/python docs/notice.py

# Three things that can go at once: while the core is compiled, Ceph and the Python packages come.
setup: $(STAMPS)/core-release $(STAMPS)/packages $(STAMPS)/system  ## Install what is missing: Debian packages, .venv, the Rust core.

$(STAMPS)/compiler: scripts/install-packages
	@PYTHON=$(PYTHON) scripts/install-packages --compiler
	@mkdir -p $(@D) && touch $@

$(STAMPS)/system: $(STAMPS)/compiler
	@PYTHON=$(PYTHON) scripts/install-packages
	@touch $@

$(STAMPS)/dev: $(STAMPS)/system $(STAMPS)/packages
	@PYTHON=$(PYTHON) scripts/install-packages --dev
	@touch $@

# What builds the core is installed first; `sed` takes its version and hashes from the lock.
$(STAMPS)/venv: requirements.lock $(STAMPS)/compiler
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) --require-hashes --only-binary :all: -r <(sed -n '/^maturin==/,/[^\\]$$/p' requirements.lock)
	@mkdir -p $(@D) && touch $@

$(STAMPS)/packages: $(STAMPS)/venv
	@echo "installing the Python packages of requirements.lock"
	@# The lock has all of them, and the core may be half installed meanwhile.
	@$(PIP) --no-deps --require-hashes --only-binary :all: -r requirements.lock
	@touch $@

# What users install is optimised; tests are content with the profile of the Rust tests, whose crates are compiled anyway.
define build_core
@echo "building the Rust core ($(1))"
@PATH=$(BIN):$$PATH MATURIN_PEP517_ARGS=--profile=$(1) $(PIP) --no-deps --no-build-isolation --editable .
endef

$(STAMPS)/core-release: $(STAMPS)/venv $(CORE_SOURCES)
	$(call build_core,release)
	@touch $@ $(STAMPS)/core

$(STAMPS)/core: $(STAMPS)/venv $(CORE_SOURCES)
	$(call build_core,dev)
	@rm -f $(STAMPS)/core-release
	@touch $@

clean:  ## Remove what was built; runs and labs stay.
	rm -rf $(VENV) target
