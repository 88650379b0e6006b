# Everything works on a fresh Debian or Ubuntu with python3 (3.11+), python3-venv and make.
VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
# Without compiled files each start of the command takes four times as long.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test check install bench conformance engines faults clean

run: $(READY)  ## start on 127.0.0.1:8080 with everything embedded
	@$(VENV)/bin/gatehouse serve

test: $(READY)  ## run all tests
	@$(PY) -m pytest -n 2 --dist loadfile

check: $(READY)  ## ruff, pyright strict, import-linter
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/lint-imports --no-cache
	@$(VENV)/bin/pyright --pythonpath $(PY)

install: $(READY)  ## only make .venv

bench: $(READY)  ## CPU per call beside a bare ASGI echo
	@$(PY) -m bench

engines: $(READY)  ## fetch the real engines that tests run
	@$(PY) -m tests.engines

conformance: $(READY)  ## the official MCP suite, through the gateway
	@$(PY) -m tests.conformance

faults: $(READY)  ## servers that die, hang and flood: a thousand kills, some 20 minutes
	@$(PY) -m tests.faults

$(READY): pyproject.toml
	@echo "making $(VENV) …"
	@if command -v uv >/dev/null 2>&1; then \
	  uv venv --quiet --allow-existing $(VENV) && \
	  uv pip install --quiet --python $(PY) -e '.[launch]' --group dev; \
	else \
	  python3 -m venv $(VENV) && $(PY) -m pip install --quiet --upgrade 'pip>=25.1' && \
	  $(PY) -m pip install --quiet -e '.[launch]' --group dev; \
	fi
	@touch $@

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache
