"""Runs of gkd: a student becomes as accurate as its teacher, which is not stored; refusals."""

import json
import re
import shlex
from pathlib import Path

import jax
import numpy as np
import pytest
from known_teacher import LIKELY, WIDTH, save_known_teacher
from safetensors.numpy import load_file

import sterling
from sterling.cli import main
from sterling.language.tokenizer import Tokenizer
from sterling.training.config.resolve_settings import resolve_settings
from sterling.training.config.run_options import LanguageSettings
from sterling.training.language.resolve_language_settings import resolve_language_settings
from sterling.types import Mistake

PAGE = (Path(__file__).parents[2] / "docs" / "language.md").read_text()
(COMMAND,) = re.findall(r"```bash\n(sterling train gkd .*)\n```", PAGE)
SIZES = {"prompts": 4, "group": 4, "limit": 4, "slots": 16, "model": "nano"}


@pytest.fixture(name="teacher")
def _teacher(tmp_path):
    return save_known_teacher(tmp_path / "models" / "teacher")


@pytest.fixture(name="questions")
def _questions(tmp_path):
    """Questions whose right answer, the teacher's likeliest, is "aaaa"."""
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(f'{{"prompt": "{each}", "answer": "aaaa"}}\n' for each in "xyz"))
    return str(path)


def leaves(run):
    return jax.tree.leaves(run.agent.state)


@pytest.mark.usefixtures("one_layer")
def test_teacher_of_the_pages_command_is_in_no_checkpoint_and_read_again_by_a_resumed_run(
    teacher, questions, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    how = {"seeds": 2, "evaluate_episodes": 2, **SIZES}
    less = [str(x) for name, value in how.items() for x in (f"--{name.replace('_', '-')}", value)]
    assert main([*shlex.split(COMMAND)[1:], "--updates", "1", *less]) == 0
    out, how = tmp_path / "runs" / "student", how | {"teacher": teacher}
    run = sterling.load(out)
    assert not any(WIDTH in leaf.shape for leaf in leaves(run))
    saved = [load_file(path) for path in (out / "checkpoints").glob("*/*.safetensors")]
    shapes = [array.shape for arrays in saved for array in arrays.values()]
    assert len(shapes) > 10
    assert not any(WIDTH in shape for shape in shapes)
    whole = sterling.train("gkd", questions, updates=2, **how)
    resumed = sterling.resume(out, updates=2)
    for one, two in zip(leaves(whole), leaves(resumed), strict=True):
        np.testing.assert_array_equal(one, two)
    assert "has changed" not in capsys.readouterr().err
    assert json.loads((out / "config.json").read_text())["speech"]["teacher"] == str(teacher)
    with (teacher / "config.json").open("a") as config:
        config.write(" ")
    sterling.load(out)
    assert f"{teacher} has changed since the run began" in capsys.readouterr().err
    (teacher / "config.json").unlink()
    sterling.load(out)  # which needs no teacher
    with pytest.raises(Mistake, match=r"teacher .* is no folder of a language model"):
        sterling.resume(out, updates=3)


def resolve(algorithm, environment, **speech):
    fields = {"limit": 4}
    asked = {"updates": 1, "fields": fields, "speech": LanguageSettings(model="nano", **speech)}
    return resolve_language_settings(resolve_settings(algorithm, environment, **asked))


def test_teacher_that_cannot_teach_is_refused_in_one_line(teacher, questions, tmp_path):
    other = save_known_teacher(tmp_path / "other", Tokenizer.bytes())
    rated, control = tmp_path / "rated", tmp_path / "control"
    for folder, made in ((rated, "reward"), (control, "ppo")):
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"algorithm": made}))
    short = save_known_teacher(tmp_path / "short")
    config = json.loads((short / "config.json").read_text())
    (short / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 5}))
    encoder = save_known_teacher(tmp_path / "encoder")
    (encoder / "config.json").write_text(json.dumps(config | {"model_type": "bert"}))
    for algorithm, speech, said in [
        ("gkd", {}, "gkd imitates a language model: add --teacher FOLDER"),
        ("grpo", {"teacher": str(teacher)}, "grpo imitates no teacher"),
        ("gkd", {"teacher": "tiny"}, "teacher tiny is no folder of a language model"),
        ("gkd", {"teacher": str(tmp_path)}, "it has no config.json"),
        ("gkd", {"teacher": str(rated)}, "rated is a reward model"),
        ("gkd", {"teacher": str(control)}, "control is no language model that can be used"),
        ("gkd", {"teacher": str(encoder)}, "encoder is no language model that can be used"),
        ("gkd", {"teacher": str(other)}, "other has other tokens than nano"),
        ("gkd", {"teacher": str(short)}, "short reads at most 5 tokens, and the context has"),
        ("gkd", {"teacher": str(teacher), "curriculum": "advantage"}, "gkd has no advantages"),
    ]:
        with pytest.raises(Mistake) as refused:
            resolve(algorithm, questions, **speech)
        assert said in str(refused.value)
        assert "\n" not in str(refused.value)
    assert resolve("gkd", questions, teacher=str(teacher)).context


@pytest.mark.slow
@pytest.mark.usefixtures("one_layer")
@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_student_from_random_weights_reaches_the_teachers_accuracy(teacher, questions, beta):
    how = {"lr": 1e-2, "rise": 2, "evaluate_episodes": 256, **SIZES, "prompts": 16}
    run = sterling.train("gkd", questions, updates=60, seeds=3, teacher=teacher, beta=beta, **how)
    right = LIKELY["a"] ** SIZES["limit"]  # the teacher's own share of right answers, 0.66
    returns = run.result["final"]["return"]["per_seed"]
    np.testing.assert_allclose(returns, right, atol=0.12)


@pytest.mark.slow
@pytest.mark.as_users
@pytest.mark.usefixtures("one_layer")
def test_several_seeds_with_one_teacher_equal_each_seed_alone(teacher, questions):
    how = {"updates": 2, "teacher": teacher, "piece": 4, "evaluate_episodes": 0, **SIZES}
    together = sterling.train("gkd", questions, seeds=[0, 1, 2], **how)
    alone = sterling.train("gkd", questions, seeds=[1], **how)
    for many, one in zip(leaves(together), leaves(alone), strict=True):
        np.testing.assert_array_equal(np.asarray(many)[1], np.asarray(one)[0])
