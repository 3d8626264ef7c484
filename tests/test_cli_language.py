"""``sterling evaluate``, ``play``, ``compare`` and ``report`` of language models."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sterling
from sterling import language
from sterling.cli import main
from sterling.commands.output.language_transcripts import turn_segments
from sterling.evaluation.language.solve_rates import judge
from sterling.language.models import lora, peft_folder
from sterling.language.models.causal_lm import MODEL_SIZES
from sterling.training.language.evaluate_scenes import answer_scenes
from sterling.types import Mistake

SHARED = {"seeds": 2, "evaluate_episodes": 8, "evaluate_every": 12, "limit": 8}


@pytest.fixture(scope="module", autouse=True)
def _one_layer():
    """The smallest new language model has one layer: its programs compile in half the time."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(MODEL_SIZES, "nano", (16, 1, 2, 1))
        yield


@pytest.fixture(scope="module")
def imitates(tmp_path_factory):
    """A folder with ``sft``, two seeds that imitate for a little while, and ``further``, which goes
    on by the same programs."""
    home = tmp_path_factory.mktemp("language")
    for name, model, updates in (("sft", "nano", 12), ("further", str(home / "sft"), 5)):
        own = {"updates": updates, "out": home / name, "model": model}
        sterling.train("sft", "reverse-text", **SHARED, **own)
    return home


@pytest.fixture(scope="module")
def runs(imitates):
    """And with ``grpo``, which goes on by reinforcement."""
    own = {"updates": 2, "out": imitates / "grpo", "model": str(imitates / "sft")}
    sterling.train("grpo", "reverse-text", **SHARED, **own, prompts=4, group=4)
    return imitates


def told(capsys, *words):
    code = main([str(word) for word in words])
    out = capsys.readouterr()
    return code, out.out, out.err


@pytest.mark.slow
def test_evaluate_command_compares_two_language_models(runs, capsys):
    asked = ("--samples", 4, "--problems", 6)
    code, out, _ = told(capsys, "evaluate", runs / "grpo", "--beside", runs / "sft", *asked)
    assert code == 0
    for words in ("pass@4", "entropy", "log-prob mismatch", "sft -> grpo", "of each", "verdict: "):
        assert words in out
    assert "\u2026" not in out  # no number is cut, however narrow the terminal
    assert "base" not in out  # the run beside it is what it began with
    found = json.loads((runs / "grpo" / "language.json").read_text())
    assert [model["label"] for model in found["models"]] == ["sft", "grpo"]
    assert (found["problems"], found["samples"]) == (6, 4)
    for model in found["models"]:
        right = model["right"]
        assert (len(right), len(right[0])) == (2, 6)
        assert set(model["pass_at_k"]) == {"1", "2", "4"}
        assert model["pass_at_k"]["1"]["value"] == pytest.approx(sum(map(sum, right)) / 48)
        assert sum(model["reasons"].values()) == 48
        assert model["mismatch"]["mean"] < 1e-5
    table = found["changes"]["any"][0]
    assert table["both"] + table["gained"] + table["lost"] + table["neither"] == 12
    assert (runs / "grpo" / "pass_at_k.png").stat().st_size > 5000


@pytest.mark.slow  # test_run_folders.py asks for the base as well
def test_solve_rates_compare_a_language_run_with_its_base_model(runs):
    found = judge(runs / "grpo", samples=2, problems=4, levels="0-1")
    assert [model.label for model in found.models] == ["base", "grpo"]
    assert found.levels == (0, 1, 0, 1)
    assert set(found.models[0].levels) == {0, 1}
    alone = judge(runs / "sft", samples=2, problems=4, levels="0-1")
    assert [model.label for model in alone.models] == ["sft"]  # it began with random weights
    assert (alone.models[0].right == found.models[0].right).all()


@pytest.mark.slow
def test_evaluate_command_of_a_language_run_prints_each_seed(imitates, capsys):
    code, out, _ = told(capsys, "evaluate", imitates / "sft", "--episodes", 4)
    assert code == 0
    assert "seed 0" in out
    assert "seed 1" in out
    assert "4 episodes each" in out


@pytest.mark.parametrize("sampled", [(), ("--sampled",)])
def test_play_prints_transcripts(imitates, capsys, sampled):
    code, out, _ = told(capsys, "play", imitates / "sft", "--episodes", 3, "--seed", 1, *sampled)
    assert code == 0
    assert out.count("\n  reverse ") == 3
    assert out.count("\n  > ") == 3
    assert "mean reward" in out
    assert "seed 1, " + ("sampled" if sampled else "greedy") in out


def shaken(x):
    """Weights with noise."""
    real = jnp.issubdtype(x.dtype, jnp.floating) and x.ndim > 2
    return x + 0.5 * jax.random.normal(jax.random.key(x.size), x.shape) if real else x


def test_language_run_policy_answers_texts_as_in_its_world(imitates):
    run = sterling.load(imitates / "sft")
    run.agent = jax.tree.map(shaken, run.agent)  # it has learned to say nothing so far
    lines = answer_scenes(run.agent, run.settings, jnp.asarray([0, 1]), 3)[1]
    _, tokenizer = run.language_model()
    asked, expected = [], []
    for line in lines:
        heard, said = (ids for _, ids in turn_segments(line))
        asked.append(tokenizer.decode(heard))
        expected.append(tokenizer.decode(said))
    assert run.policy(asked, seed=1) == expected
    assert run.policy(asked[0], seed=1) == expected[0]
    assert all(expected)
    assert run.policy(asked) != expected  # another seed's model
    drawn = {run.policy(asked[0], explore=True) for _ in range(4)}
    assert len(drawn) > 1
    for wrong, words in ((3, "is a text"), ([3], "is a text"), ("a" * 99, "than the context")):
        with pytest.raises(Mistake, match=words):
            run.policy(wrong)
    with pytest.raises(Mistake, match=r"Ask it: run.policy"):
        run.player()


def test_export_command_refuses_a_language_model_as_onnx(imitates, capsys, tmp_path):
    code, out, err = told(capsys, "export", imitates / "sft", tmp_path / "model.onnx")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"is written as a folder, for transformers and vLLM. Name it {tmp_path / 'model'}" in err
    assert not list(tmp_path.iterdir())


def test_compare_and_report_count_updates(imitates, capsys, tmp_path):
    both = imitates / "sft", f"further={imitates / 'further'}"
    code, out, err = told(capsys, "compare", *both)
    assert code == 0, err
    assert "further - sft" in out or "sft - further" in out
    code, _, err = told(capsys, "report", *both, "--out", tmp_path)
    assert code == 0, err
    page = (tmp_path / "index.html").read_text()
    assert "12 updates" in page
    assert "5 updates" in page


@pytest.mark.slow
def test_lora_language_run_trains_and_exports_adapters(runs, capsys):
    shared = {"model": str(runs / "sft"), "limit": 8, "evaluate_episodes": 4, "examples": 64}
    words = {"lora": 2, "forget": True, "updates": 2, "seeds": [3, 5], "out": runs / "lora"}
    made = sterling.train("sft", "reverse-text", **shared, **words)
    base, _ = sterling.load(runs / "sft").language_model()
    model, tokenizer = made.language_model(3)
    assert not model.stack.form.remember
    fixed = jax.tree.leaves(lora.split_trainable(model)[1])
    assert all((a == b).all() for a, b in zip(fixed, jax.tree.leaves(base), strict=True))
    moments, counts = sum(x.size for x in jax.tree.leaves(made.agent.state.optimiser)), 2
    assert moments == counts + 2 * 2 * sum(
        x.size for x in jax.tree.leaves(lora.split_trainable(model)[0])
    )

    assert told(capsys, "export", runs / "lora", runs / "whole", "--seed", 3)[0] == 0
    whole, again = language.load(runs / "whole")
    ids = jnp.asarray([tokenizer.encode("reverse abc")], jnp.int32)
    assert again.encode("reverse abc") == tokenizer.encode("reverse abc")
    np.testing.assert_allclose(whole(ids), model(ids), atol=1e-5)
    assert float(jnp.abs(whole(ids) - base(ids)).max()) > 1e-5
    code, _, err = told(capsys, "export", runs / "lora", runs / "alone", "--adapters")
    assert (code, err.count("\n")) == (2, 1)  # their base is a run: see test_run_folders.py
    peft_folder.write_adapters(runs / "alone", model)
    np.testing.assert_array_equal(peft_folder.read_adapters(runs / "alone", base)(ids), model(ids))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("evaluate", "sft", "--samples", "0"), "must be at least 1"),
        (("evaluate", "sft", "--samples", "2", "--episodes", "3"), "--problems N"),
        (("evaluate", "sft", "--method", "fqe"), "--samples N"),
        (("evaluate", "sft", "--levels", "99", "--samples", "2"), "has levels"),
        (("evaluate", "further", "--beside", "nowhere", "--samples", "2"), "nowhere"),
        (("evaluate", "further", "--beside", "sft", "sft", "--samples", "2"), "is given twice"),
        (("play", "sft", "--video", "a.mp4"), "cannot be filmed"),
        (("play", "sft", "--episodes", "0"), "--episodes must be at least 1"),
        (("play", "sft", "--seed", "7"), "no seed 7"),
        (("export", "sft", "sft"), "already exists"),
        (("export", "sft", "new", "--adapters"), "has no LoRA adapters"),
    ],
)
def test_wrong_language_command_options_are_refused_in_one_line(imitates, capsys, words, said):
    folders = ("sft", "further", "nowhere", "new")
    words = [imitates / word if word in folders else word for word in words]
    code, _, err = told(capsys, *words)
    assert code == 2
    assert said in err
    assert err.count("\n") == 1
