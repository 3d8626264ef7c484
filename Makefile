# make demo: set up and train PPO on HalfCheetah.   make test: set up and run the tests.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test lint types docs scores scores-slow bench offline language judge clean

$(STAMP): pyproject.toml Makefile
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/pip install --quiet --disable-pip-version-check -e ".[test,dev]"
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps "metaworld>=3.1.1,<3.2"  # it pins an old MuJoCo
	touch $(STAMP)

demo: $(STAMP)  ## five seeds of PPO on HalfCheetah-v5: curve, result and a film of the agent
	rm -rf runs/demo
	$(BIN)/sterling train ppo HalfCheetah-v5 --steps 400_000 --seeds 5 --out runs/demo
	$(BIN)/sterling play runs/demo --video runs/demo/cheetah.mp4

# Most of the time goes into compiling. Where it matters how a program is compiled (is a seed alone
# bit-equal to the same among several?) it is compiled as for users; elsewhere in less time, and in
# the least where nothing runs for long (tests of the contract do: probe worlds, resuming).
CONTRACT := tests/contract
PYTEST := $(BIN)/python -m pytest -n 3
LESS := --xla_cpu_use_fusion_emitters=false
LEAST := $(LESS) --xla_backend_optimization_level=0

test: $(STAMP)  ## every test
	$(PYTEST) --dist worksteal -m as_users $(CONTRACT)
	XLA_FLAGS="$(LESS)" $(PYTEST) --dist worksteal -m "not as_users" $(CONTRACT)
	XLA_FLAGS="$(LEAST)" $(PYTEST) --dist loadfile tests --ignore=$(CONTRACT)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

docs: $(STAMP)  ## regenerate every generated page from the committed results; measures nothing
	$(BIN)/python docs/generate.py

scores: $(STAMP)  ## learn to the published scores (hours); resumes where it stopped
	$(BIN)/python benchmarks/scores/run.py

scores-slow: $(STAMP)  ## the same, with the tasks that take hours each: SAC, TD3 and PPO on Pong
	$(BIN)/python benchmarks/scores/run.py --slow

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

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache
