"""Runs that taught a language model stand alone: without their base, and in another place."""

import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sterling
from sterling import language
from sterling.cli import main
from sterling.evaluation.language.solve_rates import judge
from sterling.language.models import lora
from sterling.language.models.causal_lm import tiny
from sterling.language.models.model_weights import with_dtype
from sterling.language.tokenizer import Tokenizer
from sterling.types import Mistake

SMALL = {"examples": 16, "batch": 4, "limit": 8, "updates": 1, "evaluate_episodes": 0}
TAUGHT = {"whole": [0, 1], "adapters": [0], "further": [0], "of-run": [0]}  # runs, their seeds
HOW = {  # what they begin with, and more
    "whole": ("folder", {"seeds": 2, "lr": 1e-2}),
    "adapters": ("folder", {"lora": 2, "forget": True}),
    "further": ("adapters", {}),
    "of-run": ("whole", {"lora": 2}),
    "apart": ("folder", {"seeds": 2, "strategy": "processes"}),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Runs, moved: see ``moved``."""
    yield from moved(tmp_path_factory, TAUGHT)


@pytest.fixture
def place_apart(tmp_path_factory):
    """One whose seeds were taught in processes, moved."""
    yield from moved(tmp_path_factory, ["apart"])


def moved(tmp_path_factory, names):
    """Runs that were begun with paths relative to a directory, moved out of it; their bases gone.

    What their agents were is given beside the directory that they are in now.
    """
    old, new = tmp_path_factory.mktemp("old"), tmp_path_factory.mktemp("new")
    tokenizer = Tokenizer.characters("\n abcdefghijklmnopqrstuvwxyz:")  # not the default one
    half = with_dtype(tiny(tokenizer.vocabulary, "nano"), jnp.bfloat16)

    def teach(out):
        model, more = HOW[out]
        return sterling.train("sft", "reverse-text", model=model, out=out, **{**SMALL, **more})

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(old)
        language.save("folder", half, tokenizer)
        made = {name: teach(name) for name in names}
        patch.chdir(new)
        for name in made:
            shutil.move(old / name, new / name)
        shutil.rmtree(old / "folder")
        yield old, new, {name: run.agent for name, run in made.items()}


@pytest.mark.parametrize("name", TAUGHT)
def test_language_run_folder_is_self_contained(place, name):
    holds_everything(place, name, TAUGHT[name])


@pytest.mark.slow
def test_language_run_folder_of_seed_processes_is_self_contained(place_apart):
    holds_everything(place_apart, "apart", [0, 1])
    old, new, _ = place_apart
    config = json.loads((new / "apart" / "config.json").read_text())
    assert config["speech"]["model"] == str(old / "folder")


def holds_everything(place, name, seeds):
    """The agents are in the run's folder, with the words and the numbers they began with."""
    _, new, agents = place
    run = sterling.load(new / name)
    assert list(run.settings.seeds) == seeds
    assert jax.tree.structure(run.agent.state.optimiser) == jax.tree.structure(
        agents[name].state.optimiser
    )
    pairs = zip(jax.tree.leaves(run.agent), jax.tree.leaves(agents[name]), strict=True)
    for one, other in pairs:
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    model, tokenizer = run.language_model()
    ids = tokenizer.encode("reverse: abc")
    assert tokenizer.decode(ids) == "reverse: abc"
    assert tokenizer.vocabulary == model.vocabulary < Tokenizer.characters().vocabulary
    assert str(model.embedding.dtype) == "bfloat16"


@pytest.mark.slow
def test_moved_language_run_plays_and_exports(place, capsys):
    old, new, agents = place
    assert main(["play", "further", "--episodes", "2"]) == 0
    assert capsys.readouterr().out.count("\n  > ") == 2
    assert main(["export", "further", "exported"]) == 0
    model, tokenizer = language.load("exported")
    own = jax.tree.map(lambda x: x[0], agents["further"].state.model)
    ids = jnp.asarray([tokenizer.encode("abc")], jnp.int32)
    np.testing.assert_array_equal(model(ids), lora.merge_adapters(own)(ids))
    assert main(["export", "adapters", "alone", "--adapters"]) == 0
    config = json.loads((new / "alone" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(old / "folder")


def test_language_run_config_stores_absolute_base_model_paths(place):
    old, new, _ = place
    config = json.loads((new / "further" / "config.json").read_text())
    assert config["speech"]["model"] == str(old / "adapters")
    assert config["speech"]["texts"] == ""  # none stays none


@pytest.mark.slow
def test_moved_language_run_is_judged_or_names_its_missing_base_model(place):
    old, _, _ = place
    found = judge("whole", samples=1, problems=2, base=False)
    assert [model.label for model in found.models] == ["whole"]
    with pytest.raises(
        Mistake, match=f"{old / 'folder'}, the base model of this run, no longer exists"
    ):
        judge("whole", samples=1, problems=2)


@pytest.mark.slow
def test_language_run_serves_as_base_model_of_another(place):
    run = sterling.train("sft", "reverse-text", model="whole", seeds=1, **SMALL)
    own = sterling.load("whole").language_model()[1]
    assert run.language_model()[1].encode("a\nb") == own.encode("a\nb")


@pytest.mark.parametrize("base", ["of-run", pytest.param("size", marks=pytest.mark.slow)])
def test_adapter_export_without_a_peft_base_is_refused(place, capsys, base):
    if base == "size":
        sterling.train("sft", "reverse-text", model="nano", lora=2, out="size", **SMALL)
    capsys.readouterr()  # the lines of the training
    assert main(["export", base, "refused", "--adapters"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "which PEFT cannot open. Leave out --adapters" in error
    assert main(["export", base, f"merged-{base}"]) == 0


@pytest.mark.slow
def test_reward_model_export_is_refused(place, capsys):
    asked = {"examples": 16, "batch": 4, "updates": 1, "evaluate_episodes": 0}
    sterling.train("reward", "reverse-text", model="nano", out="judge", **asked)
    assert main(["export", "judge", "speaker"]) == 2
    error = capsys.readouterr().err
    assert "judge is a reward model, which cannot be exported as a language model" in error
    assert "scored:judge:WORLD" in error
    assert not (place[1] / "speaker").exists()
