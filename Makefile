# Environments are built by uv from uv.lock and kept outside the checkout, keyed by the lock's hash;
# .venv is a thin layer over one of them that adds this checkout's packages.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3.11
CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/grpo-operator
UV_VERSION := 0.13.9
LOCK_HASH := $(shell cat uv.lock .python-version | sha256sum | cut -c1-16)
ENV_DIR := $(CACHE)/envs/trainer-$(LOCK_HASH)
UV := $(CACHE)/uv-$(UV_VERSION)/bin/uv
PY := .venv/bin/python
READY := .venv/.ready-$(LOCK_HASH)
VLLM_HASH := $(shell cat environments/vllm/uv.lock .python-version | sha256sum | cut -c1-16)
VLLM_DIR := $(CACHE)/envs/vllm-$(VLLM_HASH)
VLLM_READY := .venv-vllm/.ready-$(VLLM_HASH)

TRL_HASH := $(shell cat environments/trl/uv.lock .python-version | sha256sum | cut -c1-16)
TRL_DIR := $(CACHE)/envs/trl-$(TRL_HASH)

STAGES := .test-stages
SHORT_RUN := $(addprefix tests/trainer/test_runs.py::,test_a_run_trains_every_prompt_once_with_a_smaller_last_step test_a_run_leaves_no_process_behind)

MANIFEST ?= examples/quickstart.yaml
BACKEND ?=
# fsdp is a backend of the consumers, the others are of the producers.
BACKEND_ARGS = $(if $(filter fsdp,$(BACKEND)),--set spec.consumers.backend=fsdp,$(addprefix --backend ,$(BACKEND)))
RUN_ARGS ?=

export UV_CACHE_DIR := $(CACHE)/uv-cache
export UV_COMPILE_BYTECODE := 1
export UV_PYTHON_DOWNLOADS := never

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 16

.PHONY: setup
setup: $(READY) ## build the environment

.PHONY: run
run: $(READY) $(if $(filter vllm fsdp,$(BACKEND)),$(VLLM_READY)) ## train on this machine (MANIFEST, BACKEND=vllm or fsdp, RUN_ARGS)
	.venv/bin/grpo run $(MANIFEST) $(BACKEND_ARGS) $(RUN_ARGS)

# $(call stage,NAME,COMMAND) runs COMMAND and adds its time to the table that pytest prints at its end.
stage = TIMEFORMAT='%R s  %U s user  %S s system  $(1)'; { time { $(2); } 2>&3; } 3>&2 2>>$(STAGES)

.PHONY: test
test: ## linters, then every test but the end-to-end ones
	@rm -f $(STAGES)
	$(call stage,environment,$(MAKE) --no-print-directory $(READY))
	$(call stage,lint,$(MAKE) --no-print-directory lint)
	$(call stage,vLLM environment and test cluster,$(MAKE) --no-print-directory -j2 $(VLLM_READY) programs)
	TEST_STAGES=$(STAGES) $(PY) -m pytest tests --ignore=tests/e2e --numprocesses 2

.PHONY: programs
programs: $(READY)
	$(PY) hack/cluster/cluster.py build control helm monitoring

.PHONY: test-fast
test-fast: $(READY) ## unit tests and one short training run
	$(PY) -m pytest $(SHORT_RUN) tests/unit --numprocesses 2 --quiet

.PHONY: images
images: $(READY) ## build the images, without Docker
	$(PY) hack/images/images.py build

.PHONY: images-check
images-check: images ## run each image
	$(PY) hack/images/images.py check

.PHONY: test-e2e
test-e2e: $(READY) ## images, chart and operator on a cluster with real nodes; needs root
	$(PY) hack/cluster/cluster.py build control node helm kueue monitoring prometheus-operator
	$(PY) hack/images/images.py build operator consumer producer
	$(PY) -m pytest tests/e2e

.PHONY: test-vllm
test-vllm: $(READY) $(VLLM_READY) ## tests of the vLLM engine, in an environment of its own
	$(PY) -m pytest tests/vllm_producers

.PHONY: test-unit
test-unit: $(READY) ## unit tests, about three minutes of CPU time
	$(PY) -m pytest tests/unit

.PHONY: test-kube
test-kube: $(READY) programs ## tests against a real API server
	$(PY) -m pytest tests/kube

.PHONY: lint
lint: $(READY) ## ruff, mypy, import contracts
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(PY) -c "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports())"

.PHONY: cluster
cluster: $(READY) ## start a test cluster and print its kubeconfig
	$(PY) hack/cluster/cluster.py build
	$(PY) hack/cluster/cluster.py up

.PHONY: cluster-down
cluster-down: $(READY) ## stop the test cluster
	$(PY) hack/cluster/cluster.py down

$(UV):
	$(PYTHON) -m venv $(CACHE)/uv-$(UV_VERSION)
	$(CACHE)/uv-$(UV_VERSION)/bin/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

$(ENV_DIR)/.complete: | $(UV)
	@echo "building the environment $(ENV_DIR) (once, about 6 GB)"
	UV_PROJECT_ENVIRONMENT=$(ENV_DIR) $(UV) sync --quiet --frozen --no-install-project \
	    --python $(PYTHON) --extra trainer --extra operator --group dev --group oracle
	touch $@

$(VLLM_DIR)/.complete: | $(UV)
	@echo "building the environment $(VLLM_DIR) (once, about 6 GB, mostly shared with the other)"
	UV_PROJECT_ENVIRONMENT=$(VLLM_DIR) $(UV) sync --quiet --frozen --project environments/vllm \
	    --python $(PYTHON)
	touch $@

$(TRL_DIR)/.complete: | $(UV)
	UV_PROJECT_ENVIRONMENT=$(TRL_DIR) $(UV) sync --quiet --frozen --project environments/trl \
	    --python $(PYTHON)
	touch $@

.PHONY: .venv-trl
.venv-trl: $(TRL_DIR)/.complete ## environment of the benchmarks' other trainer
	ln -sfn $(TRL_DIR) $@

$(VLLM_READY): $(VLLM_DIR)/.complete pyproject.toml | $(UV)
	rm -rf .venv-vllm
	$(VLLM_DIR)/bin/python -m venv --without-pip .venv-vllm
	echo $(VLLM_DIR)/lib/python3.11/site-packages > .venv-vllm/lib/python3.11/site-packages/_locked.pth
	$(UV) pip install --quiet --python .venv-vllm/bin/python --no-deps --editable .
	touch $@

$(READY): $(ENV_DIR)/.complete pyproject.toml
	rm -rf .venv
	$(ENV_DIR)/bin/python -m venv --without-pip .venv
	echo $(ENV_DIR)/lib/python3.11/site-packages > .venv/lib/python3.11/site-packages/_locked.pth
	$(UV) pip install --quiet --python $(PY) --no-deps --editable .
	touch $@
