# Two commands matter: `make demo` and `make test`. Both install what is missing first; a second run installs nothing.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.PHONY: help demo test check without-ceph unit cluster rust torture search setup test-machine test-releases bench-overhead bench-startup bench-verdicts docs lock clean

PYTHON ?= python3
VENV := $(CURDIR)/.venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/.stamps
CORE_SOURCES := Cargo.toml Cargo.lock pyproject.toml $(shell find crates -name '*.rs' -o -name Cargo.toml | grep -v '/target/')
JOBS ?= $(shell nproc)

help:  ## Show this list.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

demo: setup  ## Start a real Ceph, measure it layer by layer, write report.html, take it down.
	@$(BIN)/bathy demo --output report.html

test: check  ## Everything: formatters, linters, types, layers, then every test, real Ceph included.
	@# Tests on a real Ceph wait most of the time; the others take what they leave of two processors.
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=recurse cluster without-ceph JOBS=1

without-ceph: setup $(STAMPS)/dev
	@# Compilers would take all they can get.
	@nice -n 10 cargo test --locked --workspace --no-run
	@$(MAKE) --no-print-directory rust
	@$(MAKE) --no-print-directory unit

check: setup $(STAMPS)/dev  ## Formatters, linters, types and import layers.
	$(BIN)/ruff format --check python tests benchmarks docs
	$(BIN)/ruff check python tests benchmarks docs
	$(BIN)/mypy
	$(BIN)/lint-imports
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings

rust: $(STAMPS)/system  ## Tests of the Rust crates.
	PROPTEST_RNG_SEED=1 cargo test --locked --workspace

torture: export BATHY_TORTURE_OPS = 1000000
torture: export BATHY_TORTURE_CRASHES = 10000
torture: export BATHY_TORTURE_FLIPS = 10000
torture: export BATHY_TORTURE_KILLS = 300
torture: export BATHY_TORTURE_FAULTS = 1000
torture: export BATHY_TORTURE_SCHEDULES = 100000
torture: $(STAMPS)/system  ## The cache's tests in their long forms, as root: hours. TMPDIR is where; fsx, pjdfstest, fio if installed.
	@echo "a million operations each, 10,000 power cuts, 10,000 images with flipped bits, 300 kills, 100,000 schedules: some hours"
	cargo test --locked -p bathy-cache -p bathyd -- --nocapture

unit: setup $(STAMPS)/dev  ## Python tests that need no Ceph.
	$(BIN)/pytest -m "not cluster and not releases" -n $(JOBS)

cluster: setup $(STAMPS)/dev  ## Tests on a real Ceph that the lab starts.
	$(BIN)/pytest -m "cluster and not releases and not machine"

search: setup $(STAMPS)/dev  ## Property tests on inputs that no run has seen; `make test` repeats the same ones.
	BATHY_SEARCH=1 $(BIN)/pytest -m "not cluster and not releases" -n $(JOBS)
	cargo test --locked --workspace

test-machine: setup $(STAMPS)/dev  ## A machine with systemd, ceph-volume and a cache, killed and cut off: ten minutes, in QEMU.
	$(BIN)/pytest -m machine

test-releases: setup $(STAMPS)/dev  ## The lab and the ladder on Ceph 16.2, 18.2 and 20.2.
	$(BIN)/pytest -m cluster -k release

bench-overhead: setup $(STAMPS)/dev  ## What measuring costs: see benchmarks/overhead.
	$(BIN)/python -m benchmarks.overhead

bench-startup: setup  ## What a start costs, as a multiple of `import typer`.
	$(BIN)/python -m benchmarks.startup

bench-verdicts: setup $(STAMPS)/dev  ## Printed verdicts against injected causes: see benchmarks/verdicts.
	$(BIN)/python benchmarks/verdicts

docs: setup  ## Regenerate docs/reference from the code.
	$(BIN)/python docs/generate.py

lock:  ## Resolve the Python dependencies anew; needs uv.
	uv pip compile pyproject.toml --group dev --generate-hashes --universal --python-version 3.11 \
		--no-emit-index-url --no-header --quiet --output-file requirements.lock
	cargo update

setup: $(STAMPS)/core  ## Install what is missing: Debian packages, .venv, the Rust core.

$(STAMPS)/system: scripts/install-packages
	@PYTHON=$(PYTHON) scripts/install-packages
	@mkdir -p $(@D) && touch $@

$(STAMPS)/venv: requirements.lock $(STAMPS)/system
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing the Python packages of requirements.lock"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: \
		-r requirements.lock
	@mkdir -p $(@D) && touch $@

$(STAMPS)/core: $(STAMPS)/venv $(CORE_SOURCES)
	@echo "building the Rust core"
	@PATH=$(BIN):$$PATH $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps \
		--no-build-isolation --editable .
	@touch $@

$(STAMPS)/dev: $(STAMPS)/venv scripts/install-packages
	@PYTHON=$(PYTHON) scripts/install-packages --dev
	@touch $@

clean:  ## Remove what was built; runs and labs stay.
	rm -rf $(VENV) target
