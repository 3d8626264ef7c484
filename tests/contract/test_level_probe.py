"""The probe world of levels: trained in some of them, right in all, whatever chooses among them."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import CASES, EVERYWHERE, FIRST
from test_probes import actions, lived

import sterling
from sterling import envs, random_keys
from sterling.envs.probes.level_probe import make_level_probe
from sterling.experience.levels.level_rollout import LEVEL, LevelRollout
from sterling.training import loop
from sterling.training.assembly.build_run import build_first_phase
from sterling.training.config.resolve_settings import resolve_settings
from sterling.training.evaluation.evaluator import Evaluator

REPLAY, ROBUST, ACCEL = "plr:1,0.3", "plr-robust:64,0.5,0.3,0.3", "accel:64,0.5,0.3,0.3,2"
DROPPING = (ROBUST, ACCEL)  # levels of low scores are dropped, so their values may grow old
CURRICULA = {  # who learns, and what may choose the levels meanwhile: "" is chance
    "ppo": (REPLAY, ROBUST, ACCEL),
    "recurrent-ppo": (REPLAY, ROBUST),
    **dict.fromkeys(
        ("a2c", "crossq", "ddpg", "dqn", "droq", "drq-v2", "pqn", "redq", "sac"), (REPLAY,)
    ),
    **dict.fromkeys(("curl", "d4pg", "fast-td3"), (REPLAY,)),
    **dict.fromkeys(("bro", "simba", "simba-v2", "td3", "td7", "tqc", "trpo"), (REPLAY,)),
    **dict.fromkeys(("stream-ac", "stream-q", "stream-sarsa"), (REPLAY,)),
    **dict.fromkeys(("mex", "mpo", "ppg", "v-mpo"), (REPLAY,)),
    **dict.fromkeys(("c51", "iqn", "munchausen-dqn", "qr-dqn", "rainbow"), (REPLAY,)),
    **dict.fromkeys(("bbf", "cem-rl", "spr"), ("",)),
    **dict.fromkeys(("cma-es", "openes", "r2d2", "maml", "mbpo", "pebble"), ("",)),
}
# what they compare was earned in different levels: too little is said of an action's last digits
COMPARING = ("cma-es", "openes", "pebble")
DREAMING = ("mbpo",)  # values are those of a model's rewards, known to 0.25 after so few updates
# the observation shows the level, so what an inner step adds is noise of few rows: steps are small,
# and every update has more levels
OTHERWISE = {
    "crossq": {"steps": 24_000},  # with half of them two values of 400 are off by 0.102
    "mbpo": {"fields": {"lr": 1e-3}},  # dreams err otherwise in every batch: with 3e-3 actions vary
    "maml": {"steps": 200_000, "envs": 16, "fields": {"length": 32, "inner_lr": 0.003}},
}
# levels are the sources' work: in test-all learners of each kind live among them (cases.FIRST)
LIVING = (*FIRST, "mbpo", "pebble", "pqn", "stream-q", "trpo")
QUICK = {("ppo", "levels-continuous", REPLAY), ("dqn", "levels", REPLAY)}


def book(world, purpose):
    return np.asarray(envs.make(f"probe:{world}", (0,), 1, purpose=purpose).book)


def runs():
    for name in CURRICULA if EVERYWHERE else [name for name in CURRICULA if name in LIVING]:
        each = CURRICULA[name]
        for form in CASES[name].spaces if name not in COMPARING else ("",):
            for sources in each:
                run = (name, f"levels{form}", sources)
                yield pytest.param(*run, marks=() if run in QUICK else (pytest.mark.slow,))


def test_level_probe_cases_list_every_algorithm_with_environment_levels():
    """All but those whose probe worlds have costs or several agents, and who needs a teacher."""
    living = {name for name, case in CASES.items() if case.steps}
    own = {name for name in living if CASES[name].spaces[-1] in ("", "-continuous")}
    assert set(CURRICULA) == {name for name in own if not CASES[name].taught}


def with_fields(case, changes):
    """Return a case with changed settings; ``fields`` are added to its own."""
    return dataclasses.replace(
        case, **changes | {"fields": case.fields | changes.get("fields", {})}
    )


@pytest.mark.parametrize(("name", "world", "sources"), list(runs()))
def test_level_probe_values_and_actions_are_solved_in_every_level(name, world, sources):
    case = with_fields(CASES[name], OTHERWISE.get(name, {}))
    steps = case.steps if sources in ("", REPLAY) else 2 * case.steps  # half of them are trials
    run = sterling.train(
        name, f"probe:{world}", steps=steps, envs=case.envs, seeds=2, evaluate_episodes=0,
        preset=False, sources=sources, **case.fields,
    )  # fmt: skip
    for purpose in ("train", "evaluate"):
        levels = book(world, purpose)
        answers = make_level_probe(world).answers(levels, case.fields.get("gamma", 0.8))
        whole = sources not in DROPPING
        if hasattr(run.agent.algorithm, "recall"):
            remembers(lived(run.agent, world, case.envs, purpose), answers, whole)
            continue
        if whole and hasattr(run.agent.algorithm, "value"):
            judge = jax.vmap(run.agent.algorithm.value, in_axes=(0, None))
            value = judge(run.agent.state, jnp.asarray(answers.obs))
            near = 0.25 if name in DREAMING else 0.1
            np.testing.assert_allclose(value, [answers.value] * 2, atol=near)
        seen, right = (x[answers.decides] for x in (answers.obs, answers.action))
        action = [np.ravel(list(actions(run.player(seed), seen))) for seed in (0, 1)]
        np.testing.assert_allclose(action, [right] * 2, atol=0.2 if whole else 0.25)


def remembers(rows, answers, whole):
    """Whoever goes by a memory is judged by what it does and, if ``whole``, expects on its way."""
    mask = np.asarray(rows.mask)
    obs, value = np.asarray(rows.obs)[mask], np.asarray(rows.extras["value"])[mask]
    which = np.abs(obs[:, None] - answers.obs).sum(-1).argmin(1)
    np.testing.assert_array_equal(obs, answers.obs[which])
    if whole:
        np.testing.assert_allclose(value, answers.value[which], atol=0.1)
    action, decides = np.asarray(rows.action)[mask].reshape(len(obs)), answers.decides[which]
    np.testing.assert_allclose(action[decides], answers.action[which][decides], atol=0.2)


FEW = {"ppo": {"steps": 16 * 8 * 12}, "dqn": {"steps": 800}}


@pytest.mark.parametrize(
    ("name", "sources"), [("ppo", REPLAY), ("ppo", ROBUST), ("ppo", ACCEL), ("dqn", REPLAY)]
)
def test_level_rollout_begins_in_the_named_levels_and_evaluates_on_others(name, sources):
    """What an episode really began in is what the channel ``begun`` reports."""
    asked = {"fields": CASES[name].fields, "preset": False, "envs": 8, "seeds": 2}
    settings = resolve_settings(name, "probe:levels", sources=sources, **FEW[name], **asked)
    run, _ = loop.advance(build_first_phase(settings), 10)
    source = run.source
    while not isinstance(source, LevelRollout):
        source = source.source
    rows = source.with_length(40).live(run.agent, random_keys.for_seeds(run.seeds, "test", 0))[1]
    trained, judged = book("levels", "train"), book("levels", "evaluate")
    own = np.stack([trained] * 2) if source.book is None else np.asarray(source.book)
    for seed in range(2):
        mask = np.asarray(rows.mask[seed])
        begun = np.asarray(rows.extras["begun"][seed])[mask]
        np.testing.assert_array_equal(begun, own[seed][np.asarray(rows.extras[LEVEL][seed])[mask]])
        assert set(begun) <= set(trained) or sources == ACCEL
        assert len(set(begun) - set(trained)) > 3 or sources != ACCEL
        assert not set(begun) & set(judged)
    found = Evaluator(settings, 200)(run.agent)["begun"]
    assert set(found.ravel()) <= set(judged)
    assert len(set(found.ravel())) > 50
