"""An agent program is tried on one task before anything compiles; what is wrong is told then."""

import json

import pytest
from played_programs import COMMAND, PROGRAM, tasks_of

import sterling
from sterling.language.agent_programs.program_probe import probe_program
from sterling.language.agent_programs.program_world import ProgramWorld
from sterling.types import Mistake


def probed(folder, record, command=COMMAND):
    return probe_program(ProgramWorld(tasks_of(folder, record), command))


def test_probe_tells_what_the_program_asked_and_what_that_was_worth(tmp_path):
    found = probed(tmp_path, dict(do="back", answer="a"))
    told = [[[each.content for each in messages] for messages in kind]
            for kind in (found.openings, found.replies)]  # fmt: skip
    assert told == [[["one"], ["two"]], [["more"], ["more"], ["again"], ["else"]]]
    assert found.texts == ["one", "two", "more", "more", "again", "else", "a"]
    assert "with 'a' for every answer: 6 calls in 2 conversations, reward 1 (right)" in found.line


def test_probe_answers_with_words_of_the_prompt_if_there_is_no_answer(tmp_path):
    record = dict(do="post", prompt="one two three four five", reward=0.5)
    assert probed(tmp_path, record).answer == "one two three four"


@pytest.mark.slow
def test_program_that_asks_for_likeliest_tokens_gets_them(tmp_path, capsys):
    path = tmp_path / "tasks.jsonl"
    path.write_text(json.dumps(dict(do="likeliest", prompt="1", count=3)))
    made = sterling.train("grpo", str(path), agent=f"{PROGRAM}:run", agent_top_logprobs=3,
                          model="nano", updates=1, prompts=1, group=2, limit=2)  # fmt: skip
    assert "reward 1 (right)" in capsys.readouterr().err
    (mean,) = made.result["final"]["return"]["per_seed"]
    assert 0.02 < mean < 0.5  # three tokens of about a hundred


@pytest.mark.parametrize(
    ("record", "told"),
    [
        (dict(do="silent"), "the program asked for no answer: exit code 0"),
        (dict(do="once", prompt="x"), "its last line is no number"),
        (dict(do="crash", prompt="1"), "fails before it gives a reward: exit code 3"),
    ],
)
def test_program_without_a_verdict_is_told(tmp_path, record, told):
    with pytest.raises(Mistake, match=told):
        probed(tmp_path, record)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (dict(agent="no-such-program x"), "there is no program 'no-such-program'"),
        (dict(agent="missing.py:run"), "there is no file .*missing.py"),
        (dict(agent=COMMAND, environment="game:nim"), "game:nim plays scenes of its own"),
        (dict(agent=COMMAND, agent_turns=0), "agent_turns"),
        (dict(agent=COMMAND, agent_tokens=-1), "agent_tokens"),
        (dict(agent=COMMAND, agent_seconds=0.0), "agent_seconds must be above 0"),
        (dict(agent=f"{PROGRAM}:run", rewards="nothing"), "nothing"),
        (dict(agent=COMMAND, failed_reward=float("nan")), "failed_reward must be a finite number"),
        (dict(agent=COMMAND, failed_reward="low"), "failed_reward must be a finite number"),
        (dict(failed_reward=-1.0), "failed_reward is for agent programs"),
        (dict(agent=COMMAND, failed_reward=0.0, rewards="a+b", rewards_each=True), "has no name"),
    ],
)
def test_run_with_a_wrong_option_ends_before_it_begins(tmp_path, options, told):
    path = tmp_path / "tasks.jsonl"
    path.write_text(json.dumps(dict(do="post", prompt="1", reward={"right": 1})))
    given = {"environment": str(path), "model": "nano", "updates": 1, **options}
    with pytest.raises(Mistake, match=told):
        sterling.train("grpo", **given)
