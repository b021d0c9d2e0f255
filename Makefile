# Two commands do everything on a machine with Python 3.11 or newer, make and the package registries:
#   make demo    a real local control plane with a mixed fleet, and the operator at work on it
#   make test    the short suite, end-to-end tests on a real API server included
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready

.PHONY: help demo test test-long test-1.34 parts lint golden bench sbom audit lock clean

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z0-9.-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "clusterconform needs Python 3.11 or newer; name one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "creating the environment in .venv (about a minute)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: $(READY) ## Show the operator at work on a real control plane; ONCE=1 ends by itself
	@$(BIN)/clusterconform sandbox $(if $(ONCE),--once)

# End-to-end tests wait for most of their time: four files at once on two cores are hardly slower each. A file stays
# together, since its tests share control planes.
AT_ONCE := -n 4 --dist loadfile --no-loadscope-reorder

test: $(READY) lint parts ## The short suite
	@$(BIN)/python -m pytest -m "not long" $(AT_ONCE)

test-long: $(READY) lint parts ## The long suite too
	@$(BIN)/python -m pytest --timeout 1800 --hypothesis-profile=long $(AT_ONCE)

test-1.34: $(READY) ## The end-to-end part of the long suite on the oldest Kubernetes, which is built once
	@$(BIN)/python -m pytest --timeout 1800 --kubernetes=1.34 $(AT_ONCE) tests/e2e

parts: $(READY) ## Build the control plane's programs, once
	@$(BIN)/clusterconform sandbox --build-only

lint: $(READY) ## Style, types and layers
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy operator/clusterconform tests bench supply
	@$(BIN)/lint-imports --no-cache

golden: $(READY) ## Write down what commands print now: golden outputs, and the console blocks of the docs
	@GOLDEN=write $(BIN)/python -m pytest -q tests/cli/test_golden.py
	@PYTHONPATH=tests/support $(BIN)/python tests/agreement/test_docs_blocks.py

bench: $(READY) ## Measure, side by side with a bare client
	@$(BIN)/python -m bench

sbom: $(READY) ## Write bills of materials (CycloneDX) of the image and of the sandbox's programs into build/sbom
	@$(BIN)/python -m supply sbom build/sbom

audit: $(READY) ## Ask for known vulnerabilities of Python packages and Go modules; needs their registries
	@$(BIN)/python -m supply audit

lock: $(READY) ## Resolve the dependencies anew into requirements.lock, and those of the image
	@$(BIN)/python -m pip install --quiet "uv>=0.9,<0.14"
	@$(BIN)/uv pip compile pyproject.toml --group test --group lint --group supply --group dev --universal \
	  --python-version 3.11 --generate-hashes --no-header --upgrade --quiet -o requirements.lock
	@$(BIN)/uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --no-header \
	  --no-annotate --quiet -c requirements.lock -o requirements-run.lock

clean: ## Remove the environment
	rm -rf .venv
