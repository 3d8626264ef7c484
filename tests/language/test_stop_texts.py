"""A text that stops an answer ends it: what was sampled after it is no part of the answer."""

import pytest

from sterling.language.engine.ask import Said
from sterling.language.engine.stop_texts import ended_answer
from sterling.language.tokenizer import Tokenizer

TOKENIZER = Tokenizer.characters()


def said(text, stopped=True):
    ids = TOKENIZER.encode(text) + [TOKENIZER.end] * stopped
    return Said(ids, [-float(n) for n in range(len(ids))], stopped)


@pytest.mark.parametrize("stopped", [True, False])
def test_answer_ends_with_the_tokens_of_the_first_text_that_stops_it(stopped):
    whole, text, ended = ended_answer(said("one. two; three", stopped), TOKENIZER, ["; ", ". "])
    assert (text, ended, whole.stopped) == ("one", True, False)
    assert TOKENIZER.decode(whole.ids) == "one. "
    assert whole.log_prob == [-0.0, -1.0, -2.0, -3.0, -4.0]


def test_answer_without_such_a_text_stays_as_it_is():
    for stopped in (True, False):
        given = said("one", stopped)
        assert ended_answer(given, TOKENIZER, ["; "]) == (given, "one", stopped)
