"""Runs whose answers a language model judges: their rewards, what they store, how they resume."""

import json

import jax
import numpy as np
import pytest
from counting_judge import RUBRIC, WIDTH, save_counting_judge, score_of

import sterling
from sterling.experience.offline.batch_files import read_batch
from sterling.language.tasks import find_family
from sterling.language.tokenizer import Tokenizer
from sterling.training.config.run_options import LanguageSettings
from sterling.training.language.judge_models import judge_of
from sterling.types import Mistake

SIZES = {"model": "nano", "prompts": 3, "group": 4, "limit": 4, "slots": 4, "evaluate_episodes": 2}
JUDGED = {"rubric": RUBRIC, "judge_limit": 8, "rewards": "0.25*right + judge"}
TOKENS = Tokenizer.characters()
pytestmark = pytest.mark.usefixtures("one_layer")


def answers(path):
    """Yield the question, the answer and the reward of each row of a stored batch."""
    batch = read_batch(path)
    found = (batch.obs, batch.action, batch.mask, batch.reward)
    for obs, action, own, reward in zip(*(np.asarray(x)[0] for x in found), strict=True):
        prompt = TOKENS.decode(obs[: own.argmax() + 1])
        yield prompt, TOKENS.decode(action[own]), reward.sum()


def test_grpo_learns_from_what_the_judge_says_and_resumes(tmp_path, capsys):
    judge = save_counting_judge(tmp_path / "judge")
    questions, out, dump = tmp_path / "q.jsonl", tmp_path / "run", tmp_path / "dump"
    questions.write_text('{"prompt": "ab", "answer": "a"}\n{"prompt": "xyz"}\n')
    own = {"out": out, "dump": str(dump), "judge": judge, "updates": 1, **SIZES, **JUDGED}
    run = sterling.train("grpo", str(questions), **own)
    leaves = jax.tree.leaves(run.agent)
    assert leaves
    assert not any(WIDTH in leaf.shape for leaf in leaves)  # the judge is not learned
    sterling.resume(out, updates=2)
    assert "has changed" not in capsys.readouterr().err
    rewards = []
    for path in sorted(dump.glob("*.safetensors")):
        for prompt, said, reward in answers(path):
            right = 0.25 * (prompt == "ab" and said.strip() == "a")
            assert reward == pytest.approx(right + score_of(f"{prompt}{said.strip()}0 to 9") / 9)
            rewards.append(reward)
    assert len(rewards) == 24
    assert len({*rewards}) > 2
    stored = json.loads((out / "config.json").read_text())["speech"]
    assert (stored["judge"], stored["rubric"]) == (str(judge), RUBRIC)
    assert sterling.load(out).result["final"]["reward/judge"]
    with (judge / "config.json").open("a") as config:
        config.write(" ")
    sterling.load(out)
    assert f"{judge} has changed since the run began; the new model" in capsys.readouterr().err
    (judge / "config.json").unlink()
    with pytest.raises(Mistake, match=r"judge .* is no folder of a language model"):
        sterling.resume(out, updates=3)


@pytest.mark.slow
def test_run_of_sft_is_a_judge(tmp_path):
    texts, out = tmp_path / "texts.jsonl", tmp_path / "sft"
    texts.write_text('{"prompt": "ab0 to 9", "response": "7"}\n')
    sizes = {"model": "nano", "limit": 4, "updates": 40, "batch": 2, "lr": 1e-2}
    sterling.train("sft", texts=str(texts), out=out, seeds=2, **sizes)
    speech = LanguageSettings(judge=str(out), rubric="{response}{score:0-9}", judge_limit=8)
    family = judge_of(speech)(find_family("arithmetic"))
    assert family.verify(family.sample(0, 0), "ab").rewards == {"right": 0.0, "judge": 7 / 9}
