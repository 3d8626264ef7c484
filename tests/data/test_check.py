"""Every fault is found where it is, and mended where it can be."""

import dataclasses

import numpy as np
import pytest

from sterling.data import Dataset, check, repair_dataset, require_valid
from sterling.data.dataset_metadata import Facts, Source
from sterling.types import Mistake


def changed(data, facts=None, **columns):
    """A copy with columns put to other use: name -> function that changes the array in place."""
    block = next(data.blocks())
    arrays = {name: array.copy() for name, array in block.arrays.items()}
    for name, change in columns.items():
        found = change(arrays[name])
        arrays[name] = arrays[name] if found is None else found
    block = dataclasses.replace(block, arrays=arrays)
    return Dataset.from_block(block, data.obs_space, data.action_space, facts or data.facts)


def places(findings, kind):
    return [(one.severity, one.episode, one.step) for one in findings if one.kind == kind]


def put(at, value):
    def change(array):
        array[at] = value

    return change


@pytest.fixture
def data(build):
    """Episodes 0 to 4; episode 1 begins at row 6, observation 7."""
    return build([6, 8, 5, 7, 9], [True, False, True, False, True])


def test_check_finds_nothing_in_a_valid_dataset(data):
    assert check(data) == []
    assert require_valid(data) is data


@pytest.mark.parametrize(
    ("column", "at", "step", "pieces"),
    [
        ("obs", 10, 3, [2, 4]),  # steps 2 and 3 touch it
        ("action", 9, 3, [3, 4]),
        ("reward", 6, 0, [7]),
        ("obs", 15, 8, [7]),  # the last observation
    ],
)
def test_check_finds_nan_and_repair_drops_its_steps(data, column, at, step, pieces):
    broken = changed(data, **{column: put(at, np.nan)})
    findings = check(broken)
    assert places(findings, "nan") == [("error", 1, step)]
    with pytest.raises(Mistake, match=f"error: nan: episode 1 step {step}: {column} holds NaN"):
        require_valid(broken)
    mended = repair_dataset(broken, findings)
    assert mended.lengths.tolist() == [6, *pieces, 5, 7, 9]
    assert check(mended)[0].kind == "assumed"  # the note that it was repaired, and no more
    assert {one.kind for one in check(mended)} == {"assumed"}
    assert mended.ended.tolist() == [True, *[False] * len(pieces), True, False, True]
    record = mended.transitions()  # observations are (episode, step, noise)
    np.testing.assert_array_equal(
        np.asarray(record.obs)[:, 1] + 1, np.asarray(record.next_obs)[:, 1]
    )


def test_check_and_repair_clip_actions_outside_the_bounds(data):
    broken = changed(data, action=put((7, 1), 2.5))
    assert places(check(broken), "action") == [("error", 1, 1)]
    mended = repair_dataset(broken, check(broken))
    assert mended[1].action[1, 1] == 2.0
    barely = changed(data, action=put((7, 1), np.float32(2.0) + np.float32(1e-6)))
    assert places(check(barely), "action") == [("warning", 1, 1)]
    edge = changed(data, action=lambda a: a.__setitem__((slice(3, None), 0), -2.0))
    assert places(check(edge), "edge") == [("warning", 0, 3)]
    mended = repair_dataset(edge, check(edge))
    assert not places(check(mended), "edge")
    np.testing.assert_allclose(mended[3].action, edge[3].action, atol=1e-4)


def test_check_finds_discrete_actions_that_do_not_exist(build):
    broken = changed(build([6, 8], [1, 0], discrete=True), action=put(8, 5))  # 2, 3 and 4 do
    findings = check(broken)
    assert places(findings, "action") == [("error", 1, 2)]
    assert repair_dataset(broken, findings).lengths.tolist() == [6, 2, 5]


def test_check_finds_terminals_inside_episodes_and_repair_splits_them(data):
    broken = changed(data, discount=put(9, 0.0))
    findings = check(broken)
    assert places(findings, "terminal") == [("error", 1, 3)]
    mended = repair_dataset(broken, findings)
    assert mended.lengths.tolist() == [6, 4, 4, 5, 7, 9]
    assert mended.ended.tolist() == [True, True, False, True, False, True]
    masks = Facts(sources=(Source("set", "ogbench"),))  # there it is meant so
    assert not places(check(changed(data, masks, discount=put(9, 0.0))), "terminal")


def test_check_finds_terminals_at_the_time_limit_and_repair_truncates(build):
    data = build([200, 200, 200], [True, True, True], environment="Pendulum-v1")
    findings = check(data)
    assert places(findings, "terminal") == [("error", 0, None)]
    assert "time limit is 200" in findings[0].message
    mended = repair_dataset(data, findings)
    assert not mended.ended.any()
    nameless = build([20] * 3 + [7], [True] * 4)
    assert places(check(nameless), "terminal") == [("warning", 0, None)]
    assert places(check(nameless, limit=20), "terminal") == [("error", 0, None)]
    with pytest.raises(Mistake, match="at least 1 step"):
        check(nameless, limit=0)
    assert places(check(nameless, limit=10), "length") == [("error", n, None) for n in range(3)]
    assert not places(check(build([20, 20, 20], [True, False, True])), "terminal")


def test_repair_of_ends_at_the_time_limit_keeps_ends_inside_the_episode(build):
    data = changed(build([20] * 3, [True] * 3), discount=put(24, 0.0))
    mended = repair_dataset(data, check(data, limit=20))
    assert mended.lengths.tolist() == [20, 5, 15, 20]
    assert mended.ended.tolist() == [False, True, False, False]


def test_check_uses_the_datasets_own_max_episode_steps(build):
    def at(length, ended, **options):
        found = check(build([length] * 3, [ended] * 3, environment="Pendulum-v1", options=options))
        return {one.kind for one in found if one.severity == "error"}

    assert at(300, False) == {"length"}  # Gymnasium's is 200
    assert at(300, False, max_episode_steps=300) == set()
    assert at(300, True, max_episode_steps=300) == {"terminal"}
    assert at(300, False, max_episode_steps=250) == {"length"}
    assert at(300, False, max_episode_steps=-1) == set()


def test_check_finds_discounts_outside_0_and_1(data):
    broken = changed(data, discount=put(9, 1.5))
    assert places(check(broken), "terminal") == [("error", 1, 3)]


def far(array):
    """Continuous observations, the episodes far apart."""
    array[:, 0] *= 100
    array[:, 2] = 0


def test_check_finds_next_obs_taken_from_the_next_episode(data):
    whole = changed(data, obs=far)
    assert not places(check(whole), "next_obs")
    block = next(whole.blocks())
    obs = block.arrays["obs"].copy()
    obs[6], obs[15] = obs[7], obs[16]  # of episode 0, which ended, and 1, which was cut
    broken = changed(whole, obs=lambda _: obs)
    findings = check(broken)
    assert places(findings, "next_obs") == [("error", 0, 5), ("error", 1, 7)]
    mended = repair_dataset(broken, findings)
    assert mended.lengths.tolist() == [6, 7, 5, 7, 9]
    assert mended[0].obs[-1].tolist() == mended[0].obs[-2].tolist()
    assert mended[1].obs[-1, :2].tolist() == [100, 7]
    assert not places(check(mended), "next_obs")


def test_check_finds_every_next_obs_that_crosses_a_reset(build):
    """Also those of an episode of one step, and of one that moved as far by itself."""
    lengths = [6, 8, 1, 7, 5, 6, 9]
    whole = changed(build(lengths, [False] * 7), obs=far)

    def crossing(array):
        begins = np.cumsum([0, *lengths[:-1]]) + np.arange(7)
        array[begins[3] + 2 : begins[4], 0] += 60  # a step of 60 where resets are 100 away
        array[begins[1:] - 1] = array[begins[1:]]

    broken = changed(whole, obs=crossing)
    findings = check(broken)
    last = [length - 1 for length in lengths]
    assert places(findings, "next_obs") == [("error", at, last[at]) for at in range(6)]
    first = {one.obs[0].tobytes() for one in broken}
    mended = repair_dataset(broken, findings)
    assert not first & {one.obs[-1].tobytes() for one in mended}


def test_check_reports_one_jump_in_a_continuous_stream_alone(build):
    """Pieces of a walk: one of twenty ends with a step ten times as long as the rest."""
    data = build([5] * 20, [False] * 20)

    def walk(array):
        place = np.cumsum(np.where(np.arange(101) == 25, 10.0, 1.0))
        array[:] = place[np.arange(120) - np.arange(120) // 6][:, None]

    assert places(check(changed(data, obs=walk)), "next_obs") == [("error", 4, 4)]


def test_check_accepts_episodes_cut_from_one_stream(build):
    data = build([6, 8, 5], [False] * 3)

    def stream(array):
        array[:] = (np.arange(len(array)) - array[:, 0])[:, None]

    assert not places(check(changed(data, obs=stream)), "next_obs")


@pytest.mark.filterwarnings("error")
def test_check_finds_crossed_resets_in_very_large_observations(build):
    whole = changed(build([6, 8, 5], [False] * 3), obs=far)

    def large(array):
        array[6] = array[7]
        array *= 1e25

    assert places(check(changed(whole, obs=large)), "next_obs") == [("error", 0, 5)]


def test_check_warns_of_a_reset_inside_an_episode(build):
    data = build([60] * 8, [False] * 8)

    def walk(array):
        array[:] = (array[:, 1:2] + 0.01 * array[:, 2:]) * np.ones(3)
        array[5 * 61 + 30 : 6 * 61] -= array[5 * 61 + 30]  # episode 5 begins anew at step 30

    assert places(check(changed(data, obs=walk)), "reset") == [("warning", 5, 29)]


def test_repair_drops_duplicate_episodes(data):
    twice = data[[0, 1, 0, 2, 1]]
    assert places(check(twice), "duplicate") == [("warning", 2, None), ("warning", 4, None)]
    assert repair_dataset(twice, check(twice)).lengths.tolist() == [6, 8, 5]


def test_check_refuses_a_dataset_of_empty_episodes(build):
    data = build([0, 0], [False, False])
    assert data.ended.tolist() == [False, False]
    warnings = [("warning", 0, None), ("warning", 1, None)]
    assert places(check(data), "empty") == [("error", None, None), *warnings]
    with pytest.raises(Mistake, match="no episode has any step"):
        require_valid(data)


def test_repair_drops_an_empty_episode(build):
    data = build([3, 0, 4], [True, False, True])
    assert places(check(data), "empty") == [("warning", 1, None)]
    assert repair_dataset(data, check(data)).lengths.tolist() == [3, 4]


def test_check_warns_of_constant_rewards(data, build):
    zeros = changed(data, reward=np.zeros_like)
    assert places(check(zeros), "reward") == [("warning", None, None)]
    ones = changed(data, reward=np.ones_like)
    assert not places(check(ones), "reward")  # lengths differ: it pays to live


def test_check_finds_wrong_dtypes_shapes_and_spaces(data, build):
    whole = changed(build([6, 8], [1, 0], discrete=True), action=lambda a: a.astype(np.float32))
    findings = check(whole)
    assert places(findings, "type") == [("error", None, None)]
    assert repair_dataset(whole, findings)[0].action.dtype == np.int64
    wide = changed(data, obs=lambda o: np.concatenate([o, o], 1))
    assert places(check(wide), "shape") == [("error", None, None)]
    found = check(data, "CartPole-v1")
    assert len(places(found, "space")) == 2
    assert check(data[:0])[0].kind == "empty"


def test_check_finds_impossible_observations_and_log_probs(build):
    data = build([6, 8], [1, 0], nested=True, discrete=True, extras=("log_prob",))
    outside = changed(data, **{"obs/parts/1": put(9, 9)})
    assert places(check(outside), "observation") == [("error", 1, 2)]
    likely = changed(data, **{"extra/log_prob": put(7, 0.5)})
    assert places(check(likely), "log_prob") == [("error", 1, 1)]
    nan = changed(data, **{"extra/log_prob": put(7, np.nan)})
    assert repair_dataset(nan, check(nan)).lengths.tolist() == [6, 1, 6]


def test_check_repeats_the_assumptions_in_source_notes(data):
    facts = data.facts.with_notes("the spaces were guessed from the numbers")
    assert [str(one) for one in check(data.with_facts(facts))] == [
        "warning: assumed: dataset: source 0 (made): the spaces were guessed from the numbers"
    ]


def test_a_mapped_dataset_is_checked_as_well(data, tmp_path):
    changed(data, reward=put(6, np.inf)).save(tmp_path / "a")
    mapped = Dataset(tmp_path / "a", memory=0)
    assert mapped.mapped
    assert places(check(mapped), "nan") == [("error", 1, 0)]
