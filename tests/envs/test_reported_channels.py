"""What Gymnasium environments report in `info`, or by a reward that is a vector."""

import jax
import numpy as np
import pytest
from reporting_worlds import Costly, Loud, Terms

from sterling import envs
from sterling.envs.compiled import envpool_env
from sterling.envs.hosted.worker_pool import WorldFailed
from sterling.problem.channels import Channel, channel_columns, parse_channels
from sterling.types import Mistake


def steps(world, count):
    keys = jax.random.split(jax.random.key(0), 1)
    state, _ = world.reset(keys)
    found = []
    for _ in range(count):
        state, step = world.step(state, np.zeros((1, 2), np.int32), keys)
        found.append(step)
    world.close()
    return found


@pytest.mark.parametrize("workers", [0, 1])
def test_reported_channels_read_info_and_default_to_zero_with_a_warning(workers, capsys):
    world = envs.make(Costly, (0,), 2, workers=workers, channels="cost:sum:less:0..9,terms:mean")
    assert world.spec.channels == {
        "cost": Channel(better=-1, within=(0.0, 9.0)),
        "terms": Channel(parts=("0", "1"), reduce="mean"),
    }
    found = steps(world, 5)
    assert [step.channels["cost"][0, 1] for step in found] == [1.0, 2.0, 0.0, 0.0, 1.0]
    assert [step.channels["terms"][0, 0, 1] for step in found] == [-1.0, -2.0, 9.0, 0.0, -1.0]
    assert [bool(step.mask[0, 0]) for step in found] == [True, True, True, False, True]
    assert capsys.readouterr().err.count("some steps have no info['cost']") == 1


@pytest.mark.parametrize(("weights", "learned"), [("", 11.0), ("1,0.5", 6.0)])
def test_vector_reward_is_a_reported_channel_and_summed(weights, learned, capsys):
    def factory():
        return Costly(objectives=True)

    world = envs.make(factory, (0,), 2, workers=0, reward_weights=weights)
    assert world.spec.channels == {"objectives": Channel(parts=("0", "1"), better=1)}
    first = steps(world, 1)[0]
    assert first.reward[0, 0] == learned
    np.testing.assert_array_equal(first.channels["objectives"][0, 0], [1.0, 10.0])
    assert "the reward has 2 entries, reported as objectives" in capsys.readouterr().err


def test_reported_channels_are_empty_without_declarations():
    world = envs.make(Costly, (0,), 2, workers=0)
    assert world.spec.channels == {}
    assert steps(world, 1)[0].channels == {}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"channels": "cost:median"}, "Unknown reduce"),
        ({"channels": "cost:sum:fewer"}, "Write NAME:REDUCE:DIRECTION"),
        ({"channels": "cost:sum:less:5"}, "Write NAME:REDUCE:DIRECTION"),
        ({"channels": "return:sum"}, "every run has a column of this name"),
        ({"reward_weights": "1,x"}, "are not numbers"),
        ({"reward_weights": "1,2"}, "2 numbers, but the reward has 1"),
    ],
)
def test_reported_channels_refuse_invalid_declarations(options, said):
    with pytest.raises(Mistake, match=said) as error:
        envs.make(Costly, (0,), 1, workers=0, **options)
    assert "\n" not in str(error.value)


def test_channel_declarations_are_parsed_from_text():
    assert parse_channels("") == {}
    assert parse_channels("cost, peak:max:more:-1..1") == {
        "cost": Channel(),
        "peak": Channel(reduce="max", better=1, within=(-1.0, 1.0)),
    }


@pytest.mark.skipif(
    envpool_env.unavailable_reason() is not None, reason="EnvPool is not installed here"
)
def test_reported_channels_read_envpool_info():
    name = "envpool:HalfCheetah-v4"
    world = envs.make(
        name, (0,), 2, channels="reward_run:sum:more,reward_ctrl", max_episode_steps=3
    )
    keys = jax.random.split(jax.random.key(0), 1)
    state, _ = world.reset(keys)
    move = jax.jit(world.step)
    for count in range(1, 6):
        state, step = move(state, np.full((1, 2, 6), 0.5, np.float32), keys)
        total = step.channels["reward_run"] + step.channels["reward_ctrl"]
        rewarded = np.where(step.mask, step.reward, 0.0)
        np.testing.assert_allclose(total, rewarded, rtol=1e-5, atol=1e-6)
        assert bool(step.mask.all()) == (count != 4)
    world.close()
    with pytest.raises(Mistake, match=r"no info\['reward_rum'\]; did you mean|reward_run"):
        envs.make(name, (0,), 1, channels="reward_rum")


def test_reported_channel_of_a_dict_has_a_column_for_each_of_its_numbers():
    world = envs.make(Terms, (0,), 2, workers=0, channels="reward_terms:mean:more")
    parts = ("forward", "ctrl_x", "ctrl_y_z")
    assert world.spec.channels == {"reward_terms": Channel(parts=parts, reduce="mean", better=1)}
    assert list(channel_columns(world.spec.channels)) == [f"reward_terms.{each}" for each in parts]
    found = steps(world, 2)
    np.testing.assert_array_equal(found[1].channels["reward_terms"][0, 0], [2.0, -0.5, 0.25])


def test_reported_channels_may_be_entries_of_dicts_or_have_slashes_in_their_names(capsys):
    wanted = "reward_terms.forward,reward_terms/ctrl/x:last,reward/alive:sum:more,a.b"
    world = envs.make(Terms, (0,), 2, workers=1, channels=wanted)
    assert world.spec.channels == {
        "reward_terms_forward": Channel(), "reward_terms_ctrl_x": Channel(reduce="last"),
        "reward_alive": Channel(better=1), "a_b": Channel(),
    }  # fmt: skip
    found = steps(world, 1)[0].channels
    values = {name: float(value[0, 0]) for name, value in found.items()}
    assert values == {
        "reward_terms_forward": 1.0, "reward_terms_ctrl_x": -0.5, "reward_alive": 2.0, "a_b": 3.0,
    }  # fmt: skip
    said = capsys.readouterr().err
    assert "info['reward/alive'] is reported as the channel reward_alive" in said
    assert said.count("a channel reads info['a.b'], not info['a']['b']. Rename one.") == 1
    assert "some steps have no" not in said


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"new": 1.0}, r"info\['reward_terms'\] has the entry 'new', which the first step lacked"),
        ({"forward": np.nan}, "step 2 of its episode: .* finite numbers, or leave out the channel"),
        ({"forward": "far"}, r"info\['reward_terms'\]\['forward'\] is 'far'. Give real numbers"),
        ({"forward": [1.0, 2.0]}, r"has shape \(2,\). .* channels=reward_terms.forward"),
    ],
)
def test_dict_whose_entries_change_or_are_no_numbers_is_refused(change, said):
    factory = lambda: Terms(change)  # noqa: E731
    world = envs.make(factory, (0,), 2, workers=0, channels="reward_terms", max_failures=1)
    with pytest.raises(WorldFailed, match=said):
        steps(world, 2)


def test_entry_that_a_dict_lacks_in_a_step_counts_zero_with_a_warning(capsys):
    world = envs.make(lambda: Terms({}), (0,), 2, workers=0, channels="reward_terms")
    found = steps(world, 2)
    np.testing.assert_array_equal(found[1].channels["reward_terms"][0, 0], [5.0, 0.0, 0.0])
    assert capsys.readouterr().err.count("some steps have no info['reward_terms']") == 1


def test_entries_that_would_share_a_channel_name_are_refused():
    with pytest.raises(Mistake, match=r"'a/b' and 'a.b' would both be called a_b. Leave one out"):
        parse_channels("a/b,a.b")
    with pytest.raises(Mistake, match="would both be called reward_terms_x"):
        parse_channels("reward_terms.x,reward_terms_x")


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("numbers", [(25.5, 0.0), (0.0, -25.5), (0.0, 1.000001)])
def test_first_observations_outside_their_space_are_told(workers, numbers, capsys):
    envs.make(lambda: Loud(*numbers), (0,), 1, workers=workers).close()
    told = [line for line in capsys.readouterr().err.splitlines() if "outside" in line]
    where = f"observation[1] is {min(numbers) or max(numbers):g}, outside Box(-1.0, 1.0, (2,)"
    assert [where in line for line in told] == [True] * (abs(sum(numbers)) > 2)
