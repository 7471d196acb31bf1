# `make` alone prints the targets. Everything runs in .venv. Each target adds the extras of pyproject.toml that it needs
# at its first call, in the versions and with the hashes of requirements.lock.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV_VERSION := 0.13.8
TWINE_VERSION := 7.0.0
UV := PATH="$$PATH:$(abspath $(BIN))" uv
INSTALL := $(UV) pip install --quiet --python $(BIN)/python --build-constraints requirements.lock
READY := $(VENV)/.train
# uv knows where torch's builds without CUDA are (its --torch-backend). They have the lock's versions and not its hashes, without which
# --require-hashes refuses them: the stamp .made says which builds were taken. All that is downloaded later still needs its hash.
TORCH_PINS = $$(grep -oE '^torch(vision)?==[0-9.]+' requirements.lock)
HASHES = $$(test -s $(VENV)/.made || echo --require-hashes)
COMPILE := src/rectifiers/runtime/compiling.py
NATIVE := src/rectifiers/data/jpeg src/rectifiers/prelu
MINIATURE := pipelines/miniature
LIBRARY := src/rectifiers/prelu/library.so

QUICK := 'not process and not slow and not gpu'

# $@ is the target's name
NEEDS_GPU = $(BIN)/python -c 'import sys, torch; torch.cuda.is_available() or sys.exit("error: torch sees no GPU, which make $@ is for; call it on a machine that has one")'

.DEFAULT_GOAL := help
.PHONY: help setup native train test test-all test-slow test-gpu lint types format data verify-data docs check table claims card bench bench-gpu dist lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) $(EXTRAS:%=$(VENV)/.%) ## create .venv for training; EXTRAS="wandb slurm" adds extras, TORCH=cpu takes torch without CUDA

# uv where the machine has it, else uv through pip. The package itself is editable.
$(VENV)/.made: requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$$($(PYTHON) --version) is too old: rectifiers needs Python 3.11 or newer; call make PYTHON=<one>"; exit 1; }
	@echo "Setting up $(VENV) (once; on Linux 5.8 GB, 4.6 GB of them CUDA; less with TORCH=cpu) ..."
	@rm -rf $(VENV)
	@if command -v uv >/dev/null; then uv venv --quiet --python "$$(command -v $(PYTHON))" $(VENV); \
		else $(PYTHON) -m venv $(VENV) && $(BIN)/python -m pip install --quiet uv==$(UV_VERSION); fi
	@$(INSTALL) --no-deps --editable .
	@test -z "$(TORCH)" || $(INSTALL) --no-deps --torch-backend "$(TORCH)" $(TORCH_PINS)
	@printf %s "$(TORCH)" > $@

# $(VENV)/.train, .dev, .docs, ...: an extra, beside `train`. The stamp comes last, and what was interrupted is installed again. Bytecode is
# compiled here: a first import of Lightning takes 8 s without.
$(VENV)/.%: $(VENV)/.made pyproject.toml
	@test "$*" = train || echo "Adding the extra $* to $(VENV) ..."
	@test ! -e $@.begun || again=--reinstall; touch $@.begun; $(INSTALL) $$again --compile-bytecode \
		$(HASHES) --constraints requirements.lock --requirements pyproject.toml --extra train --extra $*
	@mv $@.begun $@; touch $@

native: $(VENV)/.made ## compile the C sources; other targets do so when they change
	@$(BIN)/python $(COMPILE)

# Where it cannot be built the line says why, and everything works without, more slowly.
$(LIBRARY): $(foreach folder,$(NATIVE),$(wildcard $(folder)/*.c $(folder)/*.h)) $(COMPILE) | $(VENV)/.made
	@$(BIN)/python $(COMPILE)

train: $(READY) $(LIBRARY) ## train with PReLU and He initialisation, test, report
	@$(BIN)/python train.py activation=prelu init=he

test: lint types $(LIBRARY) ## lint, types and quick tests: minutes on two cores
	@$(BIN)/python -m pytest -n 2 --dist worksteal -m $(QUICK)

test-all: test $(VENV)/.docs ## make test, and the tests that start programs or several ranks
	@$(BIN)/python -m pytest -n 2 --dist worksteal -m 'process and not slow and not gpu'

test-slow: $(VENV)/.dev $(LIBRARY) ## the tests that take minutes
	@$(BIN)/python -m pytest -n 2 -m slow

test-gpu: $(VENV)/.dev $(LIBRARY) ## the tests that need a GPU
	@$(NEEDS_GPU)
	@$(BIN)/python -m pytest -m gpu tests/test_gpu.py

lint: $(VENV)/.dev ## ruff: lint rules and format
	@$(BIN)/ruff check --quiet && $(BIN)/ruff format --check --quiet

types: $(VENV)/.dev ## mypy on src, scripts and studies
	@$(BIN)/mypy

format: $(VENV)/.dev ## format the code and fix what ruff can
	@$(BIN)/ruff check --fix --quiet; $(BIN)/ruff format --quiet

data: $(VENV)/.imagenet ## prepare the miniature ImageNet again, compare with its dvc.lock
	@PATH="$(abspath $(BIN)):$$PATH" dvc repro --force --quiet $(MINIATURE)/dvc.yaml
	@git diff --exit-code $(MINIATURE)/dvc.lock || { git checkout --quiet $(MINIATURE)/dvc.lock; \
		echo "error: other bytes came out than dvc.lock pins, which stays as it was; dvc repro --force pins what comes out"; exit 1; }
	@$(BIN)/python scripts/verify_data.py

verify-data: $(VENV)/.imagenet ## check every prepared file against its checksum
	@$(BIN)/python scripts/verify_data.py

check: $(VENV)/.report ## check that committed results follow from their records
	@$(BIN)/python scripts/report.py check

table: $(VENV)/.report ## write results/TABLES.md from the collected records
	@$(BIN)/python scripts/report.py tables

claims: $(VENV)/.report ## run the claims that have no records yet (days), write their pages
	@$(BIN)/python scripts/claims.py run --jobs 2
	@$(BIN)/python scripts/report.py collect >/dev/null
	@$(BIN)/python scripts/report.py claims

card: $(VENV)/.report $(VENV)/.benchmark $(LIBRARY) ## benchmark ACTIVATION=mish, INIT=orthogonal, or both
	@test -n "$(ACTIVATION)$(INIT)" || { echo "give ACTIVATION= or INIT=, as in make card ACTIVATION=mish" >&2; exit 2; }
	@$(BIN)/python scripts/benchmark.py $(if $(ACTIVATION),activation=$(ACTIVATION)) $(if $(INIT),init=$(INIT)) \
		--command "make card$(if $(ACTIVATION), ACTIVATION=$(ACTIVATION))$(if $(INIT), INIT=$(INIT))"

docs: $(VENV)/.docs ## build the documentation into site/
	@echo "Building site/: a minute, and some minutes the first time, when the notebooks run ..."
	@$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --fresh-env -c docs -d .cache/sphinx . site
	@echo site/index.html

bench: $(VENV)/.report $(LIBRARY) ## time PReLU, training steps and data loading on this machine
	@for question in pipeline prelu networks step roof scaling; do $(BIN)/python studies/bench/$$question.py || exit; done
	@$(BIN)/python studies/performance.py

bench-gpu: $(VENV)/.report $(LIBRARY) ## time training steps and matrix products on a GPU
	@$(NEEDS_GPU)
	@for question in step roof scaling; do $(BIN)/python studies/bench/$$question.py || exit; done
	@$(BIN)/python studies/performance.py
	@echo "Please send in the file named above, from results/bench/, by a pull request."

dist: $(VENV)/.dev ## build and check the sdist and the wheel in dist/
	@rm -rf dist && $(BIN)/python -m hatchling build
	@$(UV) tool run --quiet --from twine==$(TWINE_VERSION) twine check --strict dist/*

lock: | $(VENV)/.made ## resolve requirements.lock; UPGRADE=--upgrade takes the newest
	@$(UV) pip compile pyproject.toml --extra dev --extra docs --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
		--custom-compile-command "make lock" --quiet $(UPGRADE) --output-file requirements.lock

clean: ## remove .venv, caches and builds; keep runs and data
	@rm -rf $(VENV) $(LIBRARY) dist site .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
