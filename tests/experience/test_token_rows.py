"""Where a line's numbers stand in the record."""

import numpy as np

from sterling.experience.language.token_rows import GroupedLines, to_record
from sterling.language.engine.transcript import Transcript
from sterling.language.scene_dialogue import ChatSettings
from sterling.language.task import Verdict
from sterling.language.tokenizer import Tokenizer


def test_token_rows_place_rewards_and_log_probs_at_their_tokens():
    """Tokens 0 to 6, of which the model said 2 and 3 in its first turn and 5 in its second."""
    own = [False, False, True, True, False, True, False]
    turn = [0, 0, 0, 0, 1, 1, 1]
    verdicts = (Verdict(0.25, ""), Verdict(0.5, ""))
    chance = [0.0, 0.0, -1.0, -2.0, 0.0, -3.0, 0.0]
    line = Transcript(0, 0, list(range(7)), own, chance, turn, 2, verdicts)
    voice = ChatSettings(Tokenizer.characters(), limit=6, context=10)
    pad = voice.tokenizer.pad
    made = to_record([GroupedLines([line], [0])], voice, 2)
    row = {name: np.asarray(x)[0, 0].tolist() for name, x in made.extras.items()}
    assert np.asarray(made.obs)[0, 0].tolist() == [0, 1, 2, 3, 4, 5, pad, pad, pad]
    assert np.asarray(made.action)[0, 0].tolist() == [1, 2, 3, 4, 5, pad, pad, pad, pad]
    assert np.flatnonzero(made.mask[0, 0]).tolist() == [1, 2, 4]
    assert np.asarray(made.reward)[0, 0].tolist() == [0, 0, 0.25, 0, 0.5, 0, 0, 0, 0]
    assert np.flatnonzero(made.last[0, 0]).tolist() == [4]
    assert np.asarray(made.discount)[0, 0].tolist() == [1, 1, 1, 1, 0, 1, 1, 1, 1]
    assert row["log_prob"] == [0, -1, -2, 0, -3, 0, 0, 0, 0]
    assert (row["score"], row["valid"], row["cut"]) == (0.75, True, False)
    assert not made.extras["valid"][0, 1]
