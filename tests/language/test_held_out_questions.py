"""Questions that are held out are judged by, and never learned from."""

import dataclasses
import json

import jax.numpy as jnp
import numpy as np
import pytest

import sterling
from sterling.evaluation.language import solve_rates
from sterling.experience.offline.batch_files import read_batch
from sterling.language import worlds
from sterling.language.worlds.held_out_questions import HeldOutSplit, is_held_out
from sterling.training.config.resolve_settings import resolve_settings
from sterling.training.config.run_options import LanguageSettings
from sterling.training.language import build_language_run, context_length
from sterling.training.language.evaluate_scenes import answer_scenes
from sterling.types import Mistake

FEW = "modular-addition"  # its lowest level has a few hundred questions
pytestmark = pytest.mark.usefixtures("one_layer")
TINY = {"model": "nano", "held_out": 0.25, "limit": 4}


def question(scene):
    return scene.turn.messages[-1].content


def both(name, share=0.25):
    return [
        HeldOutSplit(worlds.find_world(name), share, judging=judging) for judging in (False, True)
    ]


@pytest.mark.parametrize("name", [FEW, f"tools:{FEW}", f"try-again:{FEW}"])
def test_held_out_questions_are_disjoint_from_training_questions(name):
    learned, judged = ({question(place.begin(n, 0)) for n in range(600)} for place in both(name))
    assert not learned & judged
    whole = worlds.find_world(name)
    kept = [is_held_out(whole.begin(n, 0).turn.messages, 0.25) for n in range(600)]
    assert 0.15 < sum(kept) / 600 < 0.35


def test_held_out_hash_is_equal_in_every_world_and_larger_share():
    plain, tools = worlds.find_world(FEW), worlds.find_world(f"tools:{FEW}")
    for seed in range(50):
        asked = [world.begin(seed, 0).turn.messages for world in (plain, tools)]
        assert len({is_held_out(each, 0.3) for each in asked}) == 1
        assert is_held_out(asked[0], 0.3) <= is_held_out(asked[0], 0.6)


def test_held_out_split_scenes_are_reproducible_and_solvable():
    for place in both(FEW):
        first, again = place.begin(3, 0), place.begin(3, 0)
        assert question(first) == question(again)
        first.say(place.solve(first))
        assert first.verdicts[0][0].reward == 1.0


@pytest.mark.parametrize(
    "name", ["game:nim", pytest.param("gym:FrozenLake-v1", marks=pytest.mark.slow)]
)
def test_held_out_is_refused_for_a_world_with_one_opening(name):
    with pytest.raises(Mistake, match=r"no question is (held out|left to learn from)"):
        sterling.train("grpo", name, updates=1, prompts=2, group=2, model="nano", held_out=0.1)


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_invalid_held_out_share_is_refused(share):
    with pytest.raises(Mistake, match="held_out must be at least 0 and below 1"):
        resolve_settings("grpo", FEW, updates=8, speech=LanguageSettings(held_out=share))


def openings(record):
    """What the lines of a record open with, as tokens."""
    obs, mask = (np.asarray(x).reshape(-1, x.shape[-1]) for x in (record.obs, record.mask))
    return {tuple(row[: own.argmax() + 1]) for row, own in zip(obs, mask, strict=True) if own.any()}


def judged(run):
    """What a run's agents are asked when they are judged."""
    lines = answer_scenes(run.agent, run.settings, jnp.zeros(1, jnp.int32), 64)
    return {tuple(line.ids[: line.own.index(True)]) for own in lines for line in own}


@pytest.mark.slow
def test_grpo_rollouts_exclude_held_out_questions(tmp_path):
    sizes = {"updates": 4, "prompts": 16, "group": 2, "evaluate_episodes": 0}
    run = sterling.train("grpo", FEW, dump=str(tmp_path), **sizes, **TINY)
    asked = set().union(*(openings(read_batch(each)) for each in tmp_path.glob("*.safetensors")))
    assert len(asked) > 30
    with pytest.raises(Mistake, match="holds batches of another run"):
        sterling.train("grpo", FEW, dump=str(tmp_path), **sizes, **TINY)
    assert len(judged(run)) > 20
    assert not asked & judged(run)


@pytest.mark.slow
def test_sft_texts_exclude_held_out_questions(tmp_path, capsys):
    place, file = worlds.find_world(FEW), tmp_path / "texts.jsonl"
    scenes = [place.begin(seed, 0) for seed in range(100)]
    texts = [{"prompt": question(one), "response": place.solve(one)} for one in scenes]
    file.write_text("".join(json.dumps(each) + "\n" for each in texts))
    run = sterling.train("sft", FEW, updates=1, texts=str(file), evaluate_episodes=0, **TINY)
    kept = sum(is_held_out(one.turn.messages, 0.25) for one in scenes)
    assert f"{kept} of 100 texts to imitate are left out" in capsys.readouterr().err
    for source in (
        LanguageSettings(texts=str(file), held_out=0.25),
        LanguageSettings(held_out=0.25, examples=200),
    ):
        own = dataclasses.replace(run.settings, speech=source)
        begun = build_language_run.run_builder(own)(jnp.zeros(1, jnp.int32), None, False)
        assert not openings(begun.source.texts) & judged(run)


def test_preference_pairs_exclude_held_out_questions(tmp_path, capsys):
    asked = [worlds.find_world(FEW).begin(seed, 0).turn.messages for seed in range(100)]
    pairs = [{"prompt": each[-1].content, "chosen": "1", "rejected": "2"} for each in asked]
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(json.dumps(each) + "\n" for each in pairs))
    found = context_length.read_preference_pairs(LanguageSettings(texts=str(file), held_out=0.25))
    kept = sum(is_held_out(each, 0.25) for each in asked)
    assert len(found) == 100 - kept
    assert not any(is_held_out(pair.messages, 0.25) for pair in found)
    assert f"{kept} of 100 pairs are left out" in capsys.readouterr().err


@pytest.mark.slow
def test_base_run_with_smaller_held_out_share_warns(tmp_path, capsys):
    base = tmp_path / "base"
    own = {"limit": TINY["limit"], "examples": 64, "evaluate_episodes": 2}
    sterling.train("sft", FEW, updates=1, model="nano", out=base, **own)
    run = sterling.train("sft", FEW, updates=1, model=str(base), held_out=0.25, **own)
    assert "base held out 0 of its questions and this run 0.25" in capsys.readouterr().err
    found = solve_rates.judge(run, beside=[base], samples=2, problems=4)
    assert any(
        "it may have been trained on some that are asked here" in each for each in found.notes
    )


@pytest.mark.parametrize(
    ("share", "told"), [(0.0, True), pytest.param(0.25, False, marks=pytest.mark.slow)]
)
def test_replayed_dump_with_smaller_held_out_share_warns(share, told, tmp_path, capsys):
    own = {"updates": 1, "prompts": 2, "group": 2, "evaluate_episodes": 0, "model": "nano"}
    dump = str(tmp_path / "dump")
    sterling.train("grpo", FEW, held_out=share, limit=4, dump=dump, **own)
    capsys.readouterr()
    sterling.train("grpo", FEW, held_out=0.25, limit=4, replay=dump, **own)
    said = f"{dump} held out 0 of its questions and this run 0.25"
    assert (said in capsys.readouterr().err) == told
