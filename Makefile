# hostsync: `make demo` runs the main job, `make test` passes the tests; each sets itself up.
.DEFAULT_GOAL := help
SHELL := /bin/sh
PYTHON := .venv/bin/python

.PHONY: help
help: ## Show this help
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## Install what development needs: a virtual environment, and Debian packages where root
	@dev/setup

.PHONY: demo
demo: setup ## Boot a real host with a machine; upgrade, break, roll back; leave demo-report/
	@$(PYTHON) -m e2e.demo

.PHONY: test
test: setup ## All that can be tested here: check, slow tests, and the lab
	@dev/test

.PHONY: check
check: setup ## Lint, types, layers and unit tests, in seconds
	@dev/check

.PHONY: e2e
e2e: setup ## The lab tests alone
	@$(PYTHON) -m pytest e2e

.PHONY: bundle
bundle: setup ## Build dist/hostsync-<version>-linux-<arch>.tar.gz
	@$(PYTHON) -m bundle --output dist

.PHONY: bench
bench: setup ## Run the benchmarks; they print ratios
	@$(PYTHON) -m benchmarks

.PHONY: fuzz
fuzz: setup ## Fuzz the archive reader for FUZZ_SECONDS (60), and try FUZZ_CASES (100000) cases
	@dev/fuzz

.PHONY: clean
clean: ## Remove build products; the lab's cache (~/.cache/hostsync) stays
	@rm -rf build dist demo-report .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info
