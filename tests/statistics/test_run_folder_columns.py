"""A column of a run's log has a number for each seed in every row, or is refused in one line."""

import numpy as np
import pytest

from sterling.statistics.scores.run_folder_scores import column_values
from sterling.types import Mistake


def test_log_column_is_read_by_row_and_seed():
    found = column_values([{"a": [1.0, None]}, {"a": [2.0, 3.0]}], "a")
    np.testing.assert_array_equal(found, [[1.0, np.nan], [2.0, 3.0]])


@pytest.mark.parametrize("damaged", [[1.0], 1.0, [[1.0], [2.0]], ["x", 2.0], {"x": 1.0}, None])
def test_damaged_row_of_a_log_column_is_refused(damaged):
    with pytest.raises(Mistake, match="no number for each seed in every row"):
        column_values([{"a": [1.0, 2.0]}, {"a": damaged}], "a")
    with pytest.raises(Mistake, match="no number for each seed in every row"):
        column_values([{"a": [[1.0], [2.0]]}, {"a": [[1.0], [2.0]]}], "a")
