"""A transcript goes on where it was told to: in a context of before, or beside it in a new one."""

from sterling.language.engine.transcript import Transcript


def spoken(*turns):
    """A transcript of turns: what follows which turn (-1: nothing), what is heard, what is said."""
    made = Transcript(0, 0)
    for number, (after, heard, said) in enumerate(turns):
        if after is not None and after >= 0:
            made.follow(after)
        elif number:
            made.begin_context()
        made.hear(heard)
        made.say(said, [-0.5] * len(said), version=number)
    return made


def contexts(made, values):
    return [values[part] for part in made.contexts]


def test_answer_is_added_to_the_context_that_it_follows():
    made = spoken((-1, [1, 2], [3]), (-1, [4], [5, 6]), (0, [7], [8]), (1, [9], [10]))
    assert contexts(made, made.ids) == [[1, 2, 3, 7, 8], [4, 5, 6, 9, 10]]
    assert contexts(made, made.own) == [[0, 0, 1, 0, 1], [0, 1, 1, 0, 1]]
    assert contexts(made, made.turn) == [[0, 0, 0, 2, 2], [1, 1, 1, 3, 3]]
    assert contexts(made, made.version) == [[0, 0, 0, 0, 2], [0, 1, 1, 0, 3]]
    assert [made.context_of(turn) for turn in range(4)] == [0, 1, 0, 1]
    assert (made.context, made.longest) == ([4, 5, 6, 9, 10], 5)


def test_second_way_on_from_an_answer_hears_what_was_said_before_it():
    made = spoken((-1, [1], [2, 3]), (0, [4], [5]), (0, [6], [7]), (1, [8], [9]))
    assert contexts(made, made.ids) == [[1, 2, 3, 4, 5, 8, 9], [1, 2, 3, 6, 7]]
    assert contexts(made, made.own) == [[0, 1, 1, 0, 1, 0, 1], [0, 0, 0, 0, 1]]
    assert contexts(made, made.log_prob)[1] == [0.0, 0.0, 0.0, 0.0, -0.5]
    assert [made.context_of(turn) for turn in range(4)] == [0, 0, 1, 0]
    assert made.until(0) == [1, 2, 3]
    assert made.until(2) == [1, 2, 3, 6, 7]


def test_without_a_turn_to_follow_the_open_context_goes_on():
    made = spoken((-1, [1], [2]), (-1, [3], [4]))
    made.follow(None)
    made.hear([5])
    assert contexts(made, made.ids) == [[1, 2], [3, 4, 5]]
