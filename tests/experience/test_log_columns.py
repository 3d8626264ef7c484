"""A log's further columns are kept with its rows, as a replay keeps what a world reports."""

import dataclasses
import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from collected import collect
from marked_log import ACTIONS, OBS, marked_log

import sterling
from sterling.data.device_dataset import HostDataset
from sterling.data_generation.dataset_order import DatasetOrder
from sterling.data_generation.make_dataset import make_dataset
from sterling.experience.offline.dataset_batches import DatasetSource
from sterling.experience.offline.log_columns import column_channels
from sterling.experience.offline.mixed_sources import Mix
from sterling.problem.channels import Channel
from sterling.types import (
    Anywhere,
    Beside,
    Feed,
    Later,
    Mistake,
    Needs,
    Signals,
    Spec,
    config,
)

LENGTHS, GAMMA, COUNT = np.array((1, 4, 9)), 0.5, 3
ROWS, FIRST = LENGTHS.sum(), np.cumsum(LENGTHS) - LENGTHS
KEYS = jax.random.wrap_key_data(np.array([[0, 3], [0, 5]], np.uint32))  # of two seeds
COST = np.random.default_rng(0).integers(0, 9, ROWS)  # whole numbers: a channel is float32
GAINS = np.random.default_rng(1).normal(size=(ROWS, 2)).astype(np.float32)
CHANNELS = {
    "cost": Channel(better=-1),
    "gains": Channel(parts=("one", "two")),
    "speed": Channel(reduce="max"),
}
SPEC = Spec(OBS, ACTIONS, channels=CHANNELS)
NEEDS = Needs(
    feeds=(Feed(batch=64, n_step=COUNT, gamma=GAMMA),), keep=("cost", "gains", "speed", "log_prob")
)


@pytest.fixture(name="log", scope="module")
def _log():
    numbers = np.arange(ROWS, dtype=np.float32)
    columns = {"cost": COST, "gains": GAINS, "speed": numbers, "log_prob": -numbers}
    return marked_log(LENGTHS, columns={f"extra/{name}": x for name, x in columns.items()})


def drawn(source):
    _, batch = collect(source, None, KEYS)
    return jax.tree.map(lambda x: np.asarray(x).reshape(-1, *x.shape[3:]), batch)


@pytest.mark.parametrize("where", ["memory", "file", "mixture"])
def test_kept_columns_are_summed_over_n_step_windows_as_their_channels_are(log, where):
    batch = drawn(source_of(where, log, NEEDS, SPEC))
    row = row_of(batch)
    assert len(np.unique(row)) == ROWS
    for at, name in enumerate(row):
        last = min(name + COUNT, np.cumsum(LENGTHS)[int(batch.obs[at, 0])])
        weight = GAMMA ** np.arange(last - name)
        own = {name: np.asarray(x[at]) for name, x in batch.extras.items()}
        np.testing.assert_allclose(own["cost"], weight @ COST[name:last])
        np.testing.assert_allclose(own["gains"], weight @ GAINS[name:last], rtol=1e-5)
        assert (own["speed"], own["log_prob"]) == (name, -name)  # of the first row
    assert batch.extras["cost"].dtype == np.float32


def source_of(where, log, needs, spec):
    source = DatasetSource.create(log, needs, spec=spec)
    if where == "file":
        return dataclasses.replace(source, data=HostDataset(log))
    return Mix((source, source)) if where == "mixture" else source


def row_of(record):
    return FIRST[record.obs[..., 0].astype(int)] + record.obs[..., 1].astype(int)


REDUCED = {"sum": np.sum, "mean": np.mean, "max": np.max, "last": lambda x, axis: x[-1]}


@pytest.mark.parametrize("where", ["memory", "file", "mixture"])
def test_totals_of_columns_are_of_the_episode_up_to_the_row(log, where):
    """Also in n-step windows, whose first row they are of."""
    kinds = ("sum", "mean") if where != "memory" else tuple(REDUCED)
    for kind in kinds:
        channels = {"cost": Channel(reduce=kind), "gains": Channel(parts=("a", "b"), reduce=kind)}
        spec = dataclasses.replace(SPEC, channels=channels)
        keep = tuple(f"episode/{name}" for name in ("cost", "gains", "return", "length"))
        batch = drawn(source_of(where, log, dataclasses.replace(NEEDS, keep=keep), spec))
        for at, row in enumerate(row_of(batch)):
            past = slice(FIRST[int(batch.obs[at, 0])], row + 1)
            own = [np.asarray(batch.extras[name][at]) for name in keep]
            expected = [REDUCED[kind](x[past], axis=0) for x in (COST, GAINS)]
            expected += [np.arange(ROWS)[past].sum(), past.stop - past.start]
            for one, other in zip(own, expected, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-5)
    assert [batch.extras[name].dtype for name in keep[::3]] == [np.float32, np.int32]


@pytest.mark.parametrize("where", ["memory", "file", "mixture"])
def test_rows_beside_have_what_is_kept_of_them(log, where):
    """Final observations have none of it."""
    beside = (Beside("goal", Later(share=(0.2, 0.5, 0.3))), Beside("any", Anywhere(40)))
    needs = Needs(feeds=(Feed(batch=200, beside=beside),), keep=("cost", "episode/length"))
    batch = drawn(source_of(where, log, needs, SPEC))
    for rows in (batch, *batch.beside.values()):
        real = rows.mask
        at = row_of(rows)[real]
        np.testing.assert_array_equal(rows.extras["cost"][real], COST[at])
        steps = rows.obs[real, 1] + 1
        np.testing.assert_array_equal(rows.extras["episode/length"][real], steps)
    goal = batch.beside["goal"]
    assert (~goal.mask).sum() > 20
    assert not goal.extras["cost"][~goal.mask].any()
    assert not goal.extras["episode/length"][~goal.mask].any()
    assert set(goal.extras) == {"cost", "episode/length", "steps"}


def test_totals_that_a_log_cannot_tell_are_refused(log):
    def keep(*names, log=log, **feed):
        needs = Needs(feeds=(Feed(batch=4, **feed),), keep=names)
        return DatasetSource.create(log, needs, spec=SPEC)

    with pytest.raises(Mistake, match=r"'log_prob' is no channel; .* return, length, cost, gains"):
        keep("episode/log_prob")
    with pytest.raises(Mistake, match="no column 'extra/cost'; it has no column beside its steps"):
        keep("episode/cost", log=marked_log(LENGTHS))
    steps = marked_log(LENGTHS, columns={"extra/steps": np.zeros(ROWS, np.float32)})
    with pytest.raises(Mistake, match="keep names 'steps', an extra that later rows have"):
        drawn(keep("steps", log=steps, beside=(Beside("goal", Later()),)))


def test_missing_columns_are_refused_with_those_that_a_log_has(log):
    with pytest.raises(Mistake, match=r"no column 'extra/risk'; it has extra/cost, extra/gains"):
        DatasetSource.create(log, Needs(feeds=NEEDS.feeds, keep=("risk",)))
    with pytest.raises(Mistake, match="it has no column beside its steps"):
        DatasetSource.create(marked_log(LENGTHS), NEEDS)
    with pytest.raises(Mistake, match=r"of shape \(2,\) in a row, .* of shape \(\)"):
        DatasetSource.create(
            log, NEEDS, spec=dataclasses.replace(SPEC, channels={"gains": Channel()})
        )


def test_columns_of_a_log_without_an_environment_are_channels(log):
    assert column_channels(log) == {
        "cost": Channel(),
        "gains": Channel(parts=("0", "1")),
        "speed": Channel(),
    }


@config
class Config:
    """Its settings."""

    gamma: float = 0.9  # discount


class State(eqx.Module):
    """The mean cost that it saw."""

    cost: jax.Array
    config: Config


class Frugal:
    """Acts by what the step before cost, and learns what steps cost from a log's column."""

    Config, __name__ = Config, "frugal"

    def __init__(self, keep="cost"):
        self.keep = keep
        self.spec: Spec | None = None

    def needs(self, config):
        return Needs(feeds=(Feed(batch=8),), keep=(self.keep,))

    def init(self, key, spec, config):
        self.spec = spec
        return State(jnp.zeros(()), config)

    def memory(self, state, envs, key):
        return jnp.zeros(envs)

    def recall(self, state, past, obs, key, explore):
        action = past.channels["cost"] > state.cost
        return action.astype(jnp.int32), past.memory, {}

    def learn(self, state, batch, key):
        return State(jnp.mean(batch.extras[self.keep]), state.config), Signals({})


WORLD = "probe:limits-costly"


@pytest.fixture(name="costly", scope="module")
def _costly(tmp_path_factory):
    """A log of that world, in which every step costs 2, and the same without this column."""
    from sterling.data import Dataset
    from sterling.data.dataset_metadata import Facts
    from sterling.data.episode_columns import Block
    from sterling.envs import make

    spec = make(WORLD, (0,), 1).spec
    rows, folder = 12, tmp_path_factory.mktemp("costly")
    arrays = {
        "obs": np.zeros((rows + 3, *spec.obs.shape), np.float32),
        "action": np.zeros(rows, np.int64),
        "reward": np.ones(rows, np.float32),
        "discount": np.ones(rows, np.float32),
    }
    made = {}
    for name, column in (("known", "extra/cost"), ("unknown", "extra/other")):
        block = Block(
            {**arrays, column: np.full(rows, 2.0, np.float32)}, np.full(3, 4), np.zeros(3, int)
        )
        for world in (WORLD, ""):
            path = folder / f"{name}{bool(world)}"
            Dataset.from_block(block, spec.obs, spec.action, Facts(world)).save(path)
            made[name, bool(world)] = path
    return made


def test_runs_from_logs_know_channels_and_write_those_of_their_world(costly, tmp_path):
    learner, small = Frugal(), {"updates": 2, "quiet": True, "evaluate_episodes": 2}
    run = sterling.train(learner, data=costly["known", True], out=tmp_path / "run", **small)
    assert float(run.agent.state.cost[0]) == 2.0
    assert tuple(learner.spec.channels) == ("cost",)
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert set(result["channels"]) == {"cost"}
    assert result["final"]["cost"]["better"] == result["channels"]["cost"]["better"]


def test_runs_from_logs_without_a_world_act_by_their_columns(costly):
    run = sterling.train(Frugal(), data=costly["known", False], updates=2, quiet=True)
    player = run.player()
    obs = np.zeros(run.world().spec.obs.shape, np.float32)
    assert player(obs) == 0
    player.notice(1.0, False, {"cost": 3.0})
    assert player(obs) == 1


def test_logs_that_are_made_have_the_channels_of_their_world(tmp_path):
    data = make_dataset(DatasetOrder("hazards:2x3", "random", 60), tmp_path / "log")
    cost = data.transitions().extras["cost"]
    assert (cost.shape, cost.dtype) == ((60,), jnp.float32)
    assert 0 < np.count_nonzero(cost) < 60
    run = sterling.train(Frugal(), data=data, updates=2, evaluate_episodes=0, quiet=True)
    assert float(run.agent.state.cost[0]) >= 0.0


def test_agents_that_act_by_a_channel_that_their_log_lacks_are_refused(costly):
    with pytest.raises(Mistake, match="acts by 'cost', but the log has no column 'extra/cost'"):
        sterling.train(Frugal("other"), data=costly["unknown", True], updates=2, quiet=True)
