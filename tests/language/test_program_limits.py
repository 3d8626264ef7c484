"""What a run of an agent program may ask for: answers, tokens, conversations, lengths."""

from played_programs import TOKENIZER, last_lines, own_texts, played, texts
from scripted_agent import ScriptedAgent


def test_session_that_asks_too_often_is_told_and_judged(tmp_path):
    (turns,), first = played(tmp_path, dict(do="many", calls=4, answer="x"), turns=3, contexts=9)
    (apart,), second = played(tmp_path, dict(do="many", calls=4, answer="x"), contexts=3)
    assert last_lines(first + second) == [["a", "a", "a", "400 session_ended"]] * 2
    assert [line.failed or line.reward for line in (turns, apart)] == [0.0, 0.0]


def test_request_longer_than_the_context_is_told_and_the_run_judged(tmp_path):
    record = dict(do="twice", prompt="x" * 50, answer="400 context_length_exceeded")
    (line,), _ = played(tmp_path, record)
    assert (line.reward, line.turns, line.cut, line.full) == (1.0, 1, True, False)
    (never,), _ = played(tmp_path, record | {"prompt": "x" * 80})
    assert "asked for no answer" in never.failed


def test_request_that_was_refused_begins_no_conversation(tmp_path):
    (line,), scenes = played(tmp_path, dict(do="shortens", answer="x"), contexts=2)
    assert last_lines(scenes) == [["400 context_length_exceeded"] * 4 + ["a", "a"]]
    assert texts(line) == ["1amorea", "2a"]


def test_answers_of_one_request_are_given_together_or_not_at_all(tmp_path):
    record = dict(do="several", counts=[3, 2, 1], answer="x")
    (line,), scenes = played(tmp_path, record, contexts=2)
    assert last_lines(scenes) == [["400 session_ended", 2, "400 session_ended"]]
    assert (line.turns, len(scenes[0].trace)) == (2, 2)


class UpToTheLimit(ScriptedAgent):
    """Says as many letters as it may."""

    stops = False

    def answer(self, ask, seed, row):
        return TOKENIZER.encode("a" * ask.limit)


def test_answer_is_as_long_as_the_request_allows_and_no_longer_than_the_run_does(tmp_path):
    records = [dict(do="limited", prompt=f"{n}", most=n, answer="x") for n in (2, 100)]
    lines, _ = played(tmp_path, *records, agent=UpToTheLimit())
    assert [own_texts(line) for line in lines] == [["aa"], ["aaaa"]]
    assert [line.cut for line in lines] == [True, True]


def test_likeliest_tokens_are_refused_unless_they_are_kept(tmp_path):
    records = [dict(do="likeliest", prompt="1", count=n, answer="400 None") for n in (0, 1)]
    lines, _ = played(tmp_path, *records)
    assert "asked for no answer: exit code 0" in lines[1].failed
    assert lines[0].turns == 1


def test_tokens_of_a_run_may_be_limited(tmp_path):
    record = dict(do="many", calls=4, answer="x")
    (line,), scenes = played(tmp_path, record, agent=UpToTheLimit(), tokens=6)
    assert last_lines(scenes) == [["aaaa", "aa", "400 session_ended", "400 session_ended"]]
    assert (line.cut, line.turns, sum(line.own)) == (True, 2, 6)
    several = dict(do="several", counts=[2, 1], answer="x")
    (line,), scenes = played(tmp_path, several, agent=UpToTheLimit(), tokens=9)
    assert last_lines(scenes) == [[2, 1]]
    assert (line.turns, sum(line.own)) == (3, 9)
