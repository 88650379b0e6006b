# Everything works on a fresh Debian or Ubuntu with python3 (3.11+), python3-venv and make.
VENV := .venv
# What running needs and nothing else; tests and checks use $(VENV).
RUN := .venv-run
, := ,
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
# Hashes without index addresses: every installation uses its own package index.
IMAGE_EXTRAS := --extra launch --extra otlp-grpc --extra postgres --extra redis
LOCK := --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --upgrade
# Without compiled files each start of the command takes four times as long.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test coverage check install bench tool-search-bench launch-corpus conformance engines engines-test public-servers faults isolation image lock chart clean

run: $(RUN)/.ready  ## start on 127.0.0.1:8080 with everything embedded
	@$(RUN)/bin/gatehouse serve

test: $(READY)  ## run all tests
	@$(PY) -m pytest -n 2 --dist loadfile

.PHONY: command
command: $(RUN)/.ready  ## install the command gatehouse into .venv-run; EXTRAS=postgres,redis adds extras
	$(if $(EXTRAS),$(call INSTALL,$(RUN),-e '.[$(EXTRAS)]'))

LOWEST := .venv-lowest
.PHONY: lowest
# Only the direct dependencies are the lowest: an indirect one has the bounds of the package that needs it.
lowest:  ## install the lowest versions that pyproject.toml allows and run the tests of gateway/ (needs uv)
	@uv venv --quiet --clear $(LOWEST)
	@uv pip install --resolution lowest-direct --python $(LOWEST)/bin/python -e '.[launch,otlp-grpc,postgres,redis]'
	@uv pip freeze --python $(LOWEST)/bin/python --exclude-editable > $(LOWEST)/constraints.txt
	@uv pip install --python $(LOWEST)/bin/python -c $(LOWEST)/constraints.txt --group gateway-tests
	@$(LOWEST)/bin/python -m pytest -n 2 --dist loadfile tests/gateway

coverage: $(READY)  ## run all tests and print the line coverage of gateway/ and backends/
	@$(PY) -m pytest -n 2 --dist loadfile --cov --cov-report=term:skip-covered

check: $(READY)  ## ruff, pyright, import-linter, retired words, workflows, every link of the documentation
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/lint-imports --no-cache
	@$(VENV)/bin/pyright --pythonpath $(PY)
	@$(PY) -m tests.repo.vocabulary
	@$(VENV)/bin/zizmor --offline --quiet .github
	@if command -v actionlint >/dev/null; then actionlint; else echo 'actionlint is missing: go install github.com/rhysd/actionlint/cmd/actionlint@latest'; fi
	@$(SITE)

# Building the site checks its links; the pages fetch nothing from other hosts.
SITE = NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --quiet
.PHONY: docs chart-test

docs: $(READY)  ## write the pages that come from the code, and build the site into .site
	@for page in settings commands tables reference llms; do $(PY) docs/make_$$page.py || exit 1; done
	@$(SITE)

chart-test: $(READY)  ## the Helm chart alone: rendered, validated, started and called
	@$(PY) -m pytest tests/deploy

install: $(READY)  ## only make .venv

bench: $(READY)  ## CPU per call beside a bare ASGI echo; how fast a large memory answers
	@$(PY) -m bench.in_process all
	@$(PY) -m bench.accounts
	@$(PY) -m bench.tool_lists
	@$(PY) -m bench.policy
	@$(PY) -m bench.limits
	@$(PY) -m bench.workers
	@$(PY) -m bench.credential
	@$(PY) -m bench.audit
	@$(PY) -m bench.telemetry
	@$(PY) -m bench
	@$(PY) -m bench.tail
	@$(PY) -m bench.memory
	@$(PY) -m bench.memory_recall

tool-search-bench: $(READY)  ## tokens of tools/list and recall of the tool search, with public servers from npm and PyPI
	@$(PY) -m bench.tool_search

engines: $(READY)  ## fetch the real engines that tests run
	@$(PY) -m tests.engines

engines-test: engines  ## every godot tool and action on the real engine and editor, the minutes-long ones too
	@GATEHOUSE_ENGINES=all GATEHOUSE_TESTS_NO_SKIP=1 $(PY) -m pytest tests/backends/godot tests/flows/test_demo_godot.py --durations=10

.PHONY: idp-test
idp-test: $(READY)  ## sign-in with a real Keycloak (Java and mvn; downloads 177 MB once) and the SCIM conformance checks
	@GATEHOUSE_IDP=keycloak GATEHOUSE_TESTS_NO_SKIP=1 $(PY) -m pytest tests/idp tests/flows/test_scim.py

.PHONY: kubernetes
kubernetes: $(READY)  ## build a real kube-apiserver (go, apt-get, ten minutes) and read its API through tools
	@$(PY) -m tests.peers.kubernetes
	@GATEHOUSE_KUBERNETES=1 GATEHOUSE_TESTS_NO_SKIP=1 $(PY) -m pytest tests/flows/test_openapi_kubernetes.py

launch-corpus: $(READY)  ## launch real packages of five registries and print a table (needs node, go, cargo, mvn)
	@$(PY) -m tests.backends.launch.corpus

conformance: $(READY)  ## the official MCP suite, direct and through the gateway, and on authorization
	@$(PY) -m tests.conformance
	@$(PY) -m tests.conformance.tasks
	@$(PY) -m tests.conformance.authorization

public-servers: $(READY)  ## eight public MCP servers under each `trust` (downloads them; `tests/flows/test_public_servers.py` alone runs three)
	@GATEHOUSE_PUBLIC_SERVERS=all GATEHOUSE_TESTS_NO_SKIP=1 $(PY) -m pytest -n 0 tests/flows/test_public_servers.py

faults: $(READY)  ## servers that die, hang and flood: a thousand kills of each kind, the better part of an hour
	@$(PY) -m tests.faults

.PHONY: accounts-test
accounts-test: $(READY)  ## accounts on three replicas: 2000 interleaved calls with 5 s tokens, and 40 replicas killed
	@$(PY) -m tests.faults.accounts

.PHONY: task-kills
task-kills: $(READY)  ## 200 tasks on three replicas while each replica is killed in turn
	@$(PY) -m tests.faults tasks-killed

isolation: $(READY)  ## one tenant misbehaves in twenty ways, another calls at a steady rate: a table, in a quarter of an hour
	@$(PY) -m tests.isolation

image: $(READY)  ## build the image, run the chart's Deployment in it, call it (buildah and podman; BASE= names a base image)
	@$(PY) -m tests.deploy.image --with-full $(if $(BASE),--base $(BASE))

chart: $(READY)  ## write the chart's README, schema and shared files, and keep what it renders
	@$(PY) deploy/helm/make_chart.py
	@$(PY) -m tests.deploy.golden

# The second build, from the same commit, must give the same bytes.
.PHONY: release-files
release-files: $(READY)  ## build wheel, sdist, chart, notes and the list of components into dist/, twice, and compare
	@rm -rf dist .dist-again && $(PY) deploy/release/build.py dist && $(PY) deploy/release/build.py .dist-again >/dev/null
	@diff -r dist .dist-again && rm -rf .dist-again
	@python3 -m venv --clear .venv-sbom && .venv-sbom/bin/python -m pip install --quiet --require-hashes --only-binary :all: -r deploy/docker/requirements.lock
	@.venv-sbom/bin/python -m pip install --quiet --no-index --no-deps dist/*.whl && .venv-sbom/bin/python -m pip uninstall --quiet --yes pip setuptools
	@$(PY) deploy/release/sbom.py .venv-sbom/bin/python dist/gatehouse-mcp.cdx.json

lock: $(READY)  ## pin again what the image installs (needs uv)
	@uv pip compile pyproject.toml $(IMAGE_EXTRAS) -q $(LOCK) -o deploy/docker/requirements.lock
	@uv pip compile deploy/docker/build.in -q $(LOCK) -o deploy/docker/requirements-build.lock
	@uv pip compile deploy/docker/full.in -q $(LOCK) -o deploy/docker/requirements-full.lock
	@uv pip compile deploy/release/tools.in -q $(LOCK) -o deploy/release/tools.lock

# Visible progress: a silent installation looks like one that hangs. Without uv the same is done by venv and pip.
# Compiled at once, because the first start would otherwise compile everything on one core.
define INSTALL
@echo "installing into $(1) (uv if there is one, else pip) …"
@if command -v uv >/dev/null 2>&1; then \
  uv venv --quiet --allow-existing $(1) && uv pip install --compile-bytecode --python $(1)/bin/python $(2); \
else \
  python3 -m venv $(1) && $(if $(findstring --group,$(2)),$(1)/bin/python -m pip install --quiet --upgrade 'pip>=25.1' &&) \
  $(1)/bin/python -m pip install $(2); \
fi
@touch $(1)/.ready
endef

$(RUN)/.ready: pyproject.toml
	$(call INSTALL,$(RUN),-e .)

$(READY): pyproject.toml
	$(call INSTALL,$(VENV),-e '.[launch$(,)otlp-grpc$(,)postgres$(,)redis$(,)semantic$(,)semantic-light]' --group dev)

clean:
	rm -rf $(VENV) $(RUN) .venv-lowest .venv-sbom dist .dist-again .pytest_cache .ruff_cache .site
