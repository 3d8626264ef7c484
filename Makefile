# make demo: set up and train PPO on HalfCheetah.   make test: set up and run the tests.   make test-all: the slow ones as well.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.runtime

.PHONY: demo lock newest test test-slow test-slow-part test-changed test-all lint types docs scores scores-slow shootout bench offline language judge reliability mutants browser all-cases clean

# The versions that were tried, with their hashes; `pip install .` keeps the ranges of pyproject.toml.
# Python translates what it imports, which is a small part of what is installed: --no-compile.
PIP = $(BIN)/pip --disable-pip-version-check --quiet install --no-deps --no-compile
LOCK := requirements/locked.txt
RUNTIME_LOCK := requirements/runtime.txt
$(DEMO_STAMP): $(RUNTIME_LOCK) Makefile
	$(PYTHON) -m venv $(VENV)
	$(PIP) --require-hashes -r $(RUNTIME_LOCK)
	$(PIP) --no-build-isolation -e .
	touch $@

$(STAMP): $(LOCK) $(DEMO_STAMP)
	$(PIP) --require-hashes -r $(LOCK)
	touch $@

UV := .venv-lock/bin/uv pip compile --quiet --universal --fork-strategy fewest --python-version 3.11 \
	--generate-hashes --custom-compile-command "make lock" --override requirements/overrides.txt
WHOLE := --upgrade --extra test --extra dev pyproject.toml requirements/beside_pyproject.in
.venv-lock:
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/pip install --quiet --disable-pip-version-check "uv>=0.13,<0.14"

lock: .venv-lock  ## write the lock anew, with the newest versions that pyproject.toml allows
	$(UV) $(WHOLE) -o $(LOCK)
	$(UV) -c $(LOCK) pyproject.toml requirements/build.in -o $(RUNTIME_LOCK)
	$(UV) --upgrade requirements/docs.in -o requirements/docs.txt

newest: .venv-lock  ## try the newest versions that pyproject.toml allows, and say what moved
	rm -rf .venv-newest
	$(UV) $(WHOLE) -o .venv-lock/newest.txt
	$(MAKE) VENV=.venv-newest LOCK=.venv-lock/newest.txt RUNTIME_LOCK=.venv-lock/newest.txt .venv-newest/.installed
	.venv-newest/bin/python requirements/what_moved.py
	$(MAKE) VENV=.venv-newest LOCK=.venv-lock/newest.txt RUNTIME_LOCK=.venv-lock/newest.txt test

# Bytecode is kept whatever the shell says: else every process would translate everything anew.
KEEP_BYTECODE := PYTHONDONTWRITEBYTECODE=
STERLING := $(KEEP_BYTECODE) $(BIN)/sterling

demo: $(DEMO_STAMP)  ## five seeds of PPO on HalfCheetah-v5: curve, result and a film of the agent
	rm -rf runs/demo
	$(STERLING) train ppo HalfCheetah-v5 --steps 400_000 --seeds 5 --out runs/demo
	$(STERLING) play runs/demo --video runs/demo/cheetah.mp4

# Most of the time goes into compiling, so it is done in the least time; tests marked as_users compile as
# users do (tests/compiled_for_users.py). Annotations of shapes are executed in the processes of the first line.
PYTEST = XLA_FLAGS="$(LEAST)" $(KEEP_BYTECODE) $(BIN)/python -m pytest -n 3 --dist worksteal
LEAST := --xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=0
ANNOTATED := tests/algorithms tests/contract tests/equations
OTHERS := $(ANNOTATED:%=--ignore=%) tests
QUICK = $(PYTEST) -m "not slow" --timeout 240

test: $(STAMP)  ## the tests that hold every promise (about 10 minutes on two idle cores)
	$(QUICK) $(ANNOTATED); first=$$?; $(QUICK) $(OTHERS) && exit $$first

# Both groups run whatever fails; checks/slow_runs.json then says what did, and at which commit.
test-slow: $(STAMP)  ## what test leaves out: the same promises in more cases (an hour); PART=3/6: a part, unless it has passed
ifdef PART
	$(BIN)/python -m checks.passed_parts $(PART) -- $(MAKE) test-slow-part PART=$(PART)
else
	rm -rf build/slow
	-$(PYTEST) -m slow --junitxml=build/slow/annotated.xml $(ANNOTATED)
	-$(PYTEST) -m slow --junitxml=build/slow/others.xml $(OTHERS)
	$(BIN)/python checks/slow_runs.py record build/slow/annotated.xml build/slow/others.xml
endif

# Reports stay; when those of all parts of a commit are there, they are recorded as one whole run.
SLOW_PART = $(PYTEST) -m slow -p checks.slow_parts --part $(PART)
REPORT_END = $(subst /,-of-,$(PART))-$(shell git rev-parse --short=10 HEAD).xml
test-slow-part: $(STAMP)
	$(SLOW_PART) --junitxml=build/slow/annotated-$(REPORT_END) $(ANNOTATED); first=$$?; \
	$(SLOW_PART) --junitxml=build/slow/others-$(REPORT_END) $(OTHERS); second=$$?; \
	$(BIN)/python checks/slow_runs.py parts $(PART); exit $$((first + second))

SINCE := main
test-changed: $(STAMP)  ## the tests, quick and slow, that a change since SINCE (a commit or branch) can affect
	$(BIN)/python -m checks.changed --since $(SINCE) --first $(ANNOTATED) -- env $(PYTEST)

test-all: test test-slow  ## every test

all-cases: $(STAMP)  ## every algorithm on every probe world, among levels, and killed; test-all takes fewer (an hour)
	STERLING_ALL_CASES=1 $(PYTEST) tests/contract/test_probes.py tests/contract/test_resume.py tests/contract/test_level_probe.py tests/outside/test_extending.py

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(STAMP)
	$(BIN)/mypy

docs: $(STAMP) site  ## regenerate every generated page from the committed results, then build the site; measures nothing
.PHONY: pages site
pages: $(STAMP)
	$(BIN)/python docs/generate.py

site: pages .venv-docs/.installed  ## the documentation as static files, in build/site
	.venv-docs/bin/python docs/site/build_site.py

.venv-docs/.installed: requirements/docs.txt
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/pip --disable-pip-version-check --quiet install --require-hashes -r requirements/docs.txt
	touch $@

scores: $(STAMP)  ## learn to the published scores (hours); resumes where it stopped
	$(BIN)/python benchmarks/scores/run.py

scores-slow: $(STAMP)  ## the same, with the tasks that take hours each: SAC, TD3 and PPO on Pong
	$(BIN)/python benchmarks/scores/run.py --slow

shootout: $(STAMP)  ## all algorithms on the same environments, at equal steps and equal time (an hour; --slow: days)
	$(BIN)/python benchmarks/shootout/run.py

bench: $(STAMP)  ## speed beside Stable-Baselines3 and SBX
	$(BIN)/python benchmarks/speed/run.py --out benchmarks/results/speed.json

offline: $(STAMP)  ## offline learners on logs of our own agents, and on OGBench's (hours; resumable)
	$(BIN)/python benchmarks/offline/run.py
	$(BIN)/python benchmarks/offline/single_tasks.py

language: $(STAMP)  ## language models from random weights to right answers (several hours; resumable)
	$(BIN)/python benchmarks/language/learn.py
	$(BIN)/python benchmarks/language/ablation.py
	$(BIN)/python benchmarks/language/staleness.py

judge: $(STAMP)  ## statistics, stopping and tuning: do they hold what they say? (half an hour)
	$(BIN)/python benchmarks/statistics/run.py
	$(BIN)/python benchmarks/until/run.py
	$(BIN)/python benchmarks/tuning/run.py

reliability: $(STAMP)  ## kill runs and damage files: does everything hold? (hours; kills resume by kind)
	$(BIN)/python benchmarks/reliability/kills.py --kills 10
	$(BIN)/python benchmarks/reliability/damage.py --cases 300
	$(BIN)/python -m pytest -n 0 tests/reliability/test_table.py

mutants: $(STAMP)  ## plant small bugs: do the tests find them? (two hours; resumable)
	$(BIN)/python benchmarks/mutants/run.py

browser: $(STAMP)  ## the pages of `watch` and `report` in a real browser (Debian: apt-get install chromium chromium-driver)
	$(BIN)/python -m pytest -n 0 tests/browser/watch_page.py tests/browser/report_page.py

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache
