"""Agent programs, which know of a model by its address alone, are played, matched and judged."""

import dataclasses
from pathlib import Path

import pytest
from played_programs import (
    COMMAND,
    PROGRAM,
    TOKENIZER,
    VOICE,
    Counting,
    Late,
    Letters,
    is_running,
    last_lines,
    own_texts,
    played,
    texts,
)
from scripted_agent import ScriptedAgent

from sterling.language.agent_programs.failed_runs import give_lowest_rewards
from sterling.language.agent_programs.program_command import absolute_command, filled_command
from sterling.language.agent_programs.program_world import ProgramScene
from sterling.types import Mistake


def test_run_of_a_program_is_judged_by_the_answer_in_the_file(tmp_path):
    right, wrong = (dict(do="once", prompt="1", answer=x) for x in ("a", "b"))
    (first, second), _ = played(tmp_path, right, wrong)
    assert (first.reward, first.right, second.reward) == (1.0, True, 0.0)
    assert texts(first) == ["1a"]
    assert own_texts(first) == ["a"]


def test_conversation_that_goes_on_keeps_the_sampled_tokens(tmp_path):
    (line,), _ = played(tmp_path, dict(do="twice", prompt="1", answer="a"))
    assert (texts(line), line.turns) == (["1amorea"], 2)
    assert [each.reason for each in line.verdicts] == ["call", "right"]


def test_conversation_that_begins_anew_is_a_context_of_its_own(tmp_path):
    (line,), _ = played(tmp_path, dict(do="apart", prompt="1", answer="a"))
    assert (texts(line), line.turns) == (["1a", "othera"], 2)


def test_conversations_in_turns_go_on_where_they_were(tmp_path):
    (line,), _ = played(tmp_path, dict(do="back", answer="a"))
    assert texts(line) == ["oneamoreaagaina", "twoamorea", "oneaelsea"]
    assert own_texts(line) == ["aaa", "aa", "a"]  # what two contexts share is learned once
    assert [line.context_of(turn) for turn in range(line.turns)] == [0, 1, 0, 1, 0, 2]


def test_rewards_that_are_sent_come_before_the_answer_in_the_file(tmp_path):
    sent = dict(do="post", prompt="1", reward={"right": 1, "short": -0.5}, answer="b")
    (line,), _ = played(tmp_path, sent)
    assert (line.reward, line.rewards) == (0.5, {"right": 1.0, "short": -0.5})


class Scores(ScriptedAgent):
    """Answers as the prompt says."""

    def answer(self, ask, seed, row):
        said = {"number": "2", "named": '{"x":3}'}.get(TOKENIZER.decode(ask.ids), "a")
        return [*TOKENIZER.encode(said), TOKENIZER.end]


def test_last_line_is_the_reward_of_a_task_without_an_answer(tmp_path):
    records = [dict(do="once", prompt=each) for each in ("number", "named", "none")]
    (number, named, none), _ = played(tmp_path, *records, agent=Scores())
    assert (number.reward, named.rewards) == (2.0, {"x": 3.0})
    assert "its last line is no number or named ones: 'a'" in none.failed


JUDGE = """
import pathlib

def score(question, answer, stdout, folder, exit_code, trace, bonus):
    left = (pathlib.Path(folder) / "task.json").exists()
    return {"code": float(exit_code), "calls": len(trace), "left": left, "bonus": bonus,
            "said": float(stdout.strip() == answer == trace[-1]["answer"]["content"])}
"""


def test_judge_gets_what_the_program_left(tmp_path):
    (tmp_path / "mine.py").write_text(JUDGE)
    judge = f"{tmp_path / 'mine.py'}:score"
    record = dict(do="twice", prompt="1", bonus=0.25)
    (line,), _ = played(tmp_path, record, judge=judge)
    assert line.rewards == {"code": 0.0, "calls": 2.0, "left": 1.0, "bonus": 0.25, "said": 1.0}


def test_program_that_fails_is_judged(tmp_path):
    (line,), (scene,) = played(tmp_path, dict(do="crash", prompt="1", answer="a"))
    assert (line.reward, scene.left.exit_code) == (1.0, 3)


def test_program_that_fails_before_it_gives_a_reward_gets_the_lowest_of_its_group(tmp_path):
    rewards = [{"right": 1.0, "short": -0.5}, {"right": 0.0, "short": -0.1}, {"right": 1.0}]
    records = [dict(do="post", prompt="1", reward=each) for each in rewards]
    records.append(dict(do="crash", prompt="1"))
    lines, _ = played(tmp_path, *records)
    assert [line.reward for line in lines] == [0.5, -0.1, 1.0, 0.0]
    assert not lines[3].failed
    give_lowest_rewards(lines)
    assert [line.reward for line in lines] == [0.5, -0.1, 1.0, -0.1]
    assert lines[3].rewards == {"right": 0.0, "short": -0.5}
    give_lowest_rewards(lines[3:])
    assert lines[3].reward == -0.1  # nothing to compare with


def test_program_that_asks_nothing_has_no_verdict(tmp_path):
    (silent,), _ = played(tmp_path, dict(do="silent", answer="a"))
    (missing,), _ = played(tmp_path, dict(do="once", answer="a"), command="/no/such/program")
    assert "asked for no answer: exit code 0, nothing was to be done" in silent.failed
    assert "/no/such/program cannot be run" in missing.failed


def test_answer_ends_before_a_text_that_stops_it_and_no_field_changes_the_sampling(tmp_path):
    record = dict(do="samples", prompt="1", answer="x")
    (line,), scenes = played(tmp_path, record, agent=Letters("ab"))
    assert last_lines(scenes) == [["a", "a"]]
    assert texts(line) == ["1ab", "1ab"]  # what stopped it was sampled, too
    assert (line.turns, line.cut) == (2, False)


def test_request_that_is_repeated_gets_its_first_answer(tmp_path):
    (line,), scenes = played(tmp_path, dict(do="retry", prompt="1", answer="x"), agent=Differing())
    assert last_lines(scenes) == [[True, False]]
    assert line.turns == 2


class Differing(ScriptedAgent):
    """Says another letter each time."""

    said = 0

    def answer(self, ask, seed, row):
        self.said += 1
        return [*TOKENIZER.encode("abcdef"[self.said]), TOKENIZER.end]


def test_calls_at_the_same_time_are_all_answered(tmp_path):
    record = dict(do="beside", names="abc", answer="x")
    (line,), scenes = played(tmp_path, record, agent=Counting())
    assert last_lines(scenes) == [{each: "a" for each in "abc"}]
    assert sorted(texts(line)) == ["aa", "ba", "ca"]


def test_answer_that_the_program_does_not_wait_for_is_left_out(tmp_path):
    record = dict(do="hangs_up", prompt="1", answer="a")
    (line,), _ = played(tmp_path, record, agent=Late())
    assert (texts(line), own_texts(line)) == (["1a", "1aelsea"], ["a", "a"])
    assert (line.turns, line.undelivered, line.context_of(1)) == (2, 1, 1)
    assert [each.reason for each in line.verdicts] == ["call", "right"]
    assert sorted(set(line.turn)) == [0, 1]


def test_answer_that_is_asked_for_again_after_it_was_not_waited_for_counts(tmp_path):
    record = dict(do="hangs_up", prompt="1", answer="a", again=True)
    (line,), _ = played(tmp_path, record, agent=Late())
    assert (texts(line), own_texts(line)) == (["1amorea", "1aelsea"], ["aa", "a"])
    assert (line.turns, line.undelivered) == (3, 0)


@pytest.mark.parametrize("later", [0.0, 2.0])
def test_run_that_waits_for_none_of_its_answers_has_no_verdict(tmp_path, later):
    (line,), _ = played(
        tmp_path, dict(do="leaves", later=later, prompt="1", answer="a"), agent=Late()
    )
    assert "waited for none of its answers: exit code 0" in line.failed


class ByChance(ScriptedAgent):
    """Says what the chance of an ask says."""

    def answer(self, ask, seed, row):
        return [*TOKENIZER.encode(f"{ask.chance % 1000}"), TOKENIZER.end]


def test_answers_do_not_depend_on_which_request_comes_first(tmp_path):
    record = dict(do="beside", names="abca", apart=0.3, answer="x")
    _, first = played(tmp_path, record, agent=ByChance())
    _, second = played(tmp_path, record | {"names": "caba"}, agent=ByChance())
    assert last_lines(first) == last_lines(second)
    assert len(set(last_lines(first)[0].values())) == 3


def test_program_may_have_the_tokens_that_are_learned_from(tmp_path):
    (line,), scenes = played(tmp_path, dict(do="token_ids", prompt="1", answer="x"))
    ((first, second),) = last_lines(scenes)
    assert len(line.contexts) == 1
    heard, said = first
    assert second[0] + second[1] == line.ids
    assert line.ids[: len(heard) + len(said)] == heard + said
    assert [said, second[1]] == [[*TOKENIZER.encode("a"), TOKENIZER.end]] * 2


def test_program_has_its_task_and_a_folder_of_its_own(tmp_path):
    record = dict(do="places", prompt="1", answer="x", word="a b", more=[1, "ä"])
    command = f"{COMMAND} {{word}} --more {{more}} '{{}}'"
    _, scenes = played(tmp_path, record, command=command)
    words = ["a b", "--more", '[1, "ä"]', "{}"]
    ((same, given, files),) = last_lines(scenes)
    assert (same, given, sorted(files)) == (True, words, ["left.txt", "task.json"])
    assert not Path(scenes[0].left.folder).exists()


def test_requests_of_no_session_and_malformed_ones_are_told(tmp_path):
    _, scenes = played(tmp_path, dict(do="strangers", prompt="1", answer="x"))
    assert last_lines(scenes) == [[200, 200, 401, 401, 404, 400, 400]]


def test_programs_wait_for_each_other_if_few_may_run(tmp_path):
    records = [dict(do="twice", prompt=f"{n}", answer="a") for n in range(6)]
    few, _ = played(tmp_path, *records, agent=Counting(), at_once=1)
    many, _ = played(tmp_path, *records, agent=Counting(), at_once=6)
    assert [(line.ids, line.reward) for line in few] == [(line.ids, line.reward) for line in many]


def test_no_more_programs_run_than_may(tmp_path):
    record = dict(do="marks", folder=str(tmp_path))
    records = [record | {"prompt": f"{n}"} for n in range(5)]
    lines, _ = played(tmp_path, *records, at_once=1)
    assert [line.reward for line in lines] == [1.0] * 5


def test_program_that_hangs_is_killed_with_what_it_started_and_judged(tmp_path):
    command = f"sh -c '{COMMAND}; true'"
    record = dict(do="hang", prompt="1", answer="a")
    (line,), (scene,) = played(tmp_path, record, command=command, seconds=5.0)
    assert (line.reward, scene.left.exit_code) == (1.0, None)
    assert not is_running(scene)


def test_run_whose_scene_fails_keeps_no_other_one_waiting(tmp_path, monkeypatch):
    def fail(self, seat, text):
        if self.task.prompt == "1":
            raise TimeoutError("took too long")
        return hear(self, seat, text)

    hear = ProgramScene.hear
    monkeypatch.setattr(ProgramScene, "hear", fail)
    records = [dict(do="once", prompt=each, answer="a") for each in "12"]
    lines, _ = played(tmp_path, *records, at_once=1)
    assert [line.failed or line.reward for line in lines] == ["TimeoutError: took too long", 1.0]


def test_call_whose_arguments_are_not_json_is_text(tmp_path):
    said = '<tool_call>{"name": "add", "arguments": "no"}</tool_call>'
    voice = dataclasses.replace(VOICE, limit=80, context=400)
    record = dict(do="tools", prompt="1", answer="x")
    (line,), scenes = played(tmp_path, record, agent=Letters(said), voice=voice)
    assert (line.failed, last_lines(scenes)) == ("", [{"role": "assistant", "content": said}])


@pytest.mark.parametrize("command", [COMMAND, f"{PROGRAM}:run"])
def test_program_has_ended_even_if_what_it_started_keeps_its_output_open(tmp_path, command):
    record = dict(do="daemon", prompt="1", answer="a")
    (line,), (scene,) = played(tmp_path, record, command=command, seconds=3.0)
    assert (line.reward, scene.left.exit_code) == (1.0, 0)


def test_command_keeps_its_words_and_its_files_are_found_from_every_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my agent.py").touch()
    made = absolute_command("python 'my agent.py' {x} --a=b")
    assert filled_command(made, {"x": 3}) == ["python", str(tmp_path / "my agent.py"), "3", "--a=b"]
    with pytest.raises(Mistake, match=r"no field 'y' for \{y\}; it has x"):
        filled_command("a {y}", {"x": 3})
    with pytest.raises(Mistake, match="Close its quotes"):
        absolute_command("python 'a")
    with pytest.raises(Mistake, match="agent is empty"):
        absolute_command(" ")
