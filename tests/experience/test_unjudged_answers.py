"""Answers of a language model that the verifier gave no verdict."""

import io
import json
from types import SimpleNamespace

import pytest
from rich.console import Console

from sterling.experience.language.conversation_host import ConversationHost
from sterling.language.engine.transcript import Transcript
from sterling.language.scene_dialogue import ChatSettings
from sterling.language.tokenizer import Tokenizer
from sterling.report.live.live_progress import Progress
from sterling.training.evaluation.metric_rows import (
    answer_counts,
    failure_columns,
    restore_answer_counts,
)
from sterling.training.processes.merge_results import _unjudged
from sterling.training.saving.checkpoint_meta import is_run_meta
from sterling.types import Generations, Mistake


def host_of_answers():
    voice = ChatSettings(Tokenizer.characters("ab"), limit=6, context=64)
    world = SimpleNamespace(name="some questions", seats=1)
    return ConversationHost(world, voice, Generations(1, 1), (0,))


def spoken(*reasons):
    return [Transcript(n, 0, turns=1, failed=reason) for n, reason in enumerate(reasons)]


def test_answers_without_a_verdict_are_told_with_the_first_reason():
    host = host_of_answers()
    host.note(spoken(*[""] * 40))
    assert host.unjudged_text() == ""
    assert failure_columns({"3": "why"}, [host]) == {"failed": [3]}
    host.note(spoken("verifier nonsense: verify returned 5.0", "no reward", *[""] * 38))
    told = "2 of 80, the first: verifier nonsense: verify returned 5.0"
    row = failure_columns({}, [host])
    assert row["without_verdict"] == told
    screen = io.StringIO()
    shown = Progress(1000, 1, "grpo", Console(file=screen, width=200))
    shown.write({"step": 100, "time/steps_per_second": 1.0, **row})
    shown.close()
    assert f"answers without a verdict: {told}" in screen.getvalue()
    parts = [{"without_verdict": "1 of 2, the first: a"}, {}, {"without_verdict": told}]
    assert _unjudged(parts) == {"without_verdict": f"1 of 2, the first: a; {told}"}


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"data/flat": [1.0, 0.9], "data/cut": [0.2, None]}, ["the same reward: 95%"]),
        ({"data/flat": [0.5], "data/cut": [0.5]}, ["cut off at their length limit: 50%"]),
        ({"data/flat": [None], "data/cut": [0.49]}, []),
    ],
)
def test_progress_says_when_most_answers_are_cut_off_or_rewarded_alike(row, told):
    console = Console(file=io.StringIO(), width=200)
    progress = Progress(8, 2, "GRPO on letters", console)
    common = {"step": 0, "update": 2, "time/updates_per_second": 1.0, "data/episodes": [8]}
    progress.write({**common, "data/return": [0.5, 0.25], **row})
    facts = [fact for fact in progress._facts() if "answers" in fact]
    progress.close()
    assert len(facts) == len(told)
    assert all(end in fact for fact, end in zip(facts, told, strict=True))


def test_conversation_rollout_stops_if_over_a_tenth_of_recent_answers_have_no_verdict():
    host = host_of_answers()
    host.note(spoken("verify returned -1", *[""] * 4))  # too few answers to decide
    host.note(spoken("verify returned -1", *[""] * 14))  # 2 of 20
    with pytest.raises(
        Mistake,
        match=r"14% of the last 22 answers in some questions .*returned -1.* a finite number",
    ):
        host.note(spoken("late", ""))
    healthy = host_of_answers()
    healthy.note(spoken(*[""] * 5_000))
    with pytest.raises(Mistake, match="of the last 1,000 answers"):
        healthy.note(spoken(*["late"] * 101, ""))


def test_checkpoint_keeps_the_counts_of_answers_without_a_verdict():
    before, after = host_of_answers(), host_of_answers()
    before.note(spoken("verify returned -1", *[""] * 9, "late"))
    kept = json.loads(json.dumps(answer_counts([object(), before])))
    restore_answer_counts([object(), after], kept)
    assert (
        after.unjudged_text()
        == before.unjudged_text()
        == ("2 of 11, the first: verify returned -1")
    )
    meta = {"alive": [True], "failures": {}, "phase": 0, "answers": kept}
    assert is_run_meta(meta, 1)
    assert not is_run_meta(meta | {"answers": [kept[0] | {"answers": "2"}]}, 1)
    restore_answer_counts([after], ())  # an older checkpoint has none
    with pytest.raises(Mistake, match="15% of the last 20 answers"):  # 2 of them before
        after.note(spoken("late", *[""] * 8))
