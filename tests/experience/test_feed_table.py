"""Every kind of feed, store and option works together, or is refused in one line: one table."""

import dataclasses
import re

import numpy as np
import pytest
from feed_learner import FeedLearner

import sterling
from sterling.data import Dataset, device_dataset
from sterling.data_generation.dataset_order import DatasetOrder
from sterling.data_generation.make_dataset import make_dataset
from sterling.types import Anywhere, Beside, Dreams, Feed, Later, Mistake, SameTask

EXPERT = (Beside("expert", Anywhere(6), of="log"),)
FEEDS = {
    "rows": Feed(batch=8),
    "n-step": Feed(batch=8, n_step=3, gamma=0.9),
    "crossing": Feed(batch=8, length=3),
    "masked": Feed(batch=8, length=3, edge="mask"),
    "padded": Feed(batch=8, length=3, edge="pad"),
    "priority": Feed(batch=8, priority=0.6),
    "later": Feed(batch=8, beside=(Beside("goal", Later(share=(0.2, 0.5, 0.3))),)),
    "anywhere": Feed(batch=8, beside=(Beside("more", Anywhere(6)),)),
    "same task": Feed(batch=8, beside=(Beside("context", SameTask(6, "luck")),)),
    "expert": Feed(batch=8, beside=EXPERT),
    "added": Feed(batch=8, add=("next_action", "place", "one_step")),
    "to go": Feed(batch=8, monte_carlo=0.9),
    "kept totals": Feed(batch=8),
    "kept column": Feed(batch=8, n_step=3, gamma=0.9),
    "dreams": Feed("dream", batch=8, dreams=Dreams(4, 2, 32, 0.5)),
    "rollout": Feed("fresh"),
    "rollout and places": Feed("fresh", add=("place",)),
    "rollout and expert": Feed("fresh", beside=EXPERT),
    "episodes": Feed("episodes"),
    "steps": Feed("episodes", add=("steps",)),
    "steps and expert": Feed("episodes", add=("steps",), beside=EXPERT),
}
KEEP = {"kept totals": ("episode/return",), "kept column": ("luck",)}
WORLDS = {"hidden": "probe:hidden", "hindsight": "flip:4"}
OPTIONS = {
    "none": {},
    "augment": {"augment": "gaussian:0.01"},
    "hidden": {},
    "hindsight": {"hindsight": "future"},
    "stack": {"env_options": {"stack": 2}},
}
STORES = ("replay", "log", "file", "mixture")
LIVED = "rollout, rollout and places, episodes, steps"
BESIDE = "rollout and expert, steps and expert"
REFUSED = (  # feeds, stores, options (* for all), and what is said; the first that fits
    ("rollout and places", "replay", "*", "no place without a replay"),
    (f"expert, {BESIDE}", "replay", "*", "give data=FILE"),
    (LIVED, "log, file, mixture", "*", "learns only from its own experience"),
    (BESIDE, "log, file", "*", "Give steps=N and no updates"),
    ("dreams", "mixture", "*", "from one store of rows"),
    (f"{LIVED}, {BESIDE}", "*", "augment", "which learns from rollouts"),
    ("dreams", "*", "hidden", "which its policy does not|only critics see"),
    ("dreams", "*", "hindsight", "hindsight does not change the goals of model rollouts"),
    ("later", "*", "hindsight", "draws its goals itself"),
    (f"{LIVED}, {BESIDE}", "*", "hindsight", "hindsight needs a replay buffer"),
    ("expert", "mixture", "hindsight", ""),
    ("*", "log, file, mixture", "hindsight", "does not relabel goals of a dataset"),
    ("anywhere, same task", "replay", "hindsight", "keep theirs"),
    ("to go", "replay", "hindsight", "learns from returns to the episode's end"),
    ("crossing, masked, padded", "replay", "hindsight", "learns from sequences"),
)


def refusal(*cell):
    """What is said of a feed, a store and an option; "" if they work together."""
    for *names, said in REFUSED:
        if all(n == "*" or c in n.split(", ") for n, c in zip(names, cell, strict=True)):
            return said
    return ""


@pytest.fixture(name="logs", scope="module")
def _logs(tmp_path_factory):
    """A function that returns a log of random actions for an option."""
    made = {}

    def log(option):
        if option not in made:
            more = OPTIONS[option].get("env_options", {})
            order = DatasetOrder(WORLDS.get(option, "CartPole-v1"), "random", 400, env_options=more)
            plain = make_dataset(order, tmp_path_factory.mktemp("log") / option)
            (block,) = plain.blocks()
            arrays = {**block.arrays, "extra/luck": np.ones(plain.rows, np.float32)}
            block = dataclasses.replace(block, arrays=arrays)
            log = Dataset.from_block(block, plain.obs_space, plain.action_space, plain.facts)
            made[option] = log.save(tmp_path_factory.mktemp("columns") / option)
        return made[option]

    return log


@pytest.mark.slow
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("store", STORES)
def test_feeds_of_a_store_work_with_an_option_or_are_refused_in_one_line(
    store, option, logs, monkeypatch
):
    if store == "file":  # as if it were larger than memory
        monkeypatch.setattr(device_dataset, "_device_budget", lambda device: 0)
    how = {"evaluate_episodes": 0, "quiet": True, "seeds": 2, **OPTIONS[option]}
    how |= {"updates": 2} if store in ("log", "file") else {"steps": 128, "envs": 4}
    how |= {} if store == "replay" else {"data": logs(option)}
    wrong = {}
    for name, feed in FEEDS.items():
        expected = refusal(name, store, option)
        try:
            learner = FeedLearner(feed, KEEP.get(name, ()))
            run = sterling.train(learner, WORLDS.get(option, "CartPole-v1"), **how)
            said = "" if np.all(np.asarray(run.agent.state.updates) > 0) else "no update"
        except Mistake as mistake:
            said = str(mistake)
        if bool(said) != bool(expected) or not re.search(expected, said) or "\n" in said:
            wrong[name] = said or "it works"
    assert not wrong
