"""Messages show values whole, or cut them between their parts."""

import numpy as np
import pytest

from sterling.data.formats.hdf5 import _raise_unsupported
from sterling.system.shown_values import MOST_OF_VALUE, short_text, shown_value
from sterling.training.config.option_checks import check_argument_types
from sterling.types import Mistake


def test_value_in_a_message_is_whole_up_to_two_hundred_characters():
    path = "runs/" + "a" * (MOST_OF_VALUE - 7)
    assert shown_value(path) == repr(path)
    assert shown_value(np.eye(2)) == "array([[1., 0.], [0., 1.]])"


def test_longer_value_in_a_message_is_cut_between_its_parts():
    assert shown_value(list(range(1_000))).endswith(", 50, 51, ...")
    sizes = [{"width": [64, 64]}] * 20
    assert shown_value(sizes).endswith("{'width': [64, 64]}, ...")
    assert len(shown_value("x" * 500)) == MOST_OF_VALUE + len(" ...")


def test_long_error_in_a_message_is_not_cut_inside_a_value():
    said = "the shapes differ: " + "word " * 50 + "(" + "64, " * 20 + "64)"
    assert short_text(said) == ("the shapes differ: " + "word " * 50).strip() + " ..."
    assert short_text("one\n  two") == "one two"


def test_refused_argument_is_shown_whole():
    wrong = ["runs/cheetah-with-a-long-name-000001", "runs/cheetah-with-a-long-name-000002"]
    with pytest.raises(Mistake) as said:
        check_argument_types(init=wrong)
    assert str(wrong) in str(said.value)
    with pytest.raises(Mistake, match="n" * 90):
        _raise_unsupported(b"n" * 90, "made of references")
