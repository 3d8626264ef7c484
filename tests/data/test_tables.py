"""Tables of logged steps as datasets: every convention against numbers worked out by hand."""

import gzip
import json

import numpy as np
import pandas
import pyarrow
import pyarrow.parquet
import pytest
from gymnasium import spaces

from sterling.data import Dataset, check, concatenate, import_table
from sterling.data.formats.env_spaces import has_guessed_spaces
from sterling.data.tables import table_episodes, table_files
from sterling.types import Mistake

# episode 1 terminates in its third row; episode 2 is cut after its third row
ROWS = {
    "id": [1, 1, 1, 2, 2, 2],
    "t": [0, 1, 2, 0, 1, 2],
    "a": [0.0, 1.0, 2.0, 10.0, 11.0, 12.0],
    "b": [0.5, 0.5, 0.5, 0.25, 0.25, 0.25],
    "u": [0, 1, 0, 2, 0, 1],
    "r": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
    "done": [0, 0, 1, 0, 0, 0],
}
HOW = {"obs": ["a", "b"], "action": "u", "reward": "r", "episode": "id", "terminal": "done"}


def notes(data):
    return " | ".join(note for source in data.facts.sources for note in source.notes)


def first_obs(data):
    """The first component of every observation, episode by episode."""
    return [one.obs[:, 0].tolist() for one in data]


def columns(data):
    return [(one.action.tolist(), one.reward.tolist(), one.discount.tolist()) for one in data]


def changed(**columns):
    return {**ROWS, **columns}


def test_table_keeps_terminated_rows_and_uses_truncated_rows_as_next_obs():
    data = import_table(ROWS, **HOW)
    # the end of episode 1 has no successor that matters: a copy; episode 2 loses its last action
    assert first_obs(data) == [[0, 1, 2, 2], [10, 11, 12]]
    assert columns(data) == [
        ([0, 1, 0], [1, 2, 3], [1, 1, 0]),
        ([2, 0], [4, 5], [1, 1]),
    ]
    assert data.action_space == spaces.Discrete(3)
    assert data.obs_space.shape == (2,)
    assert "the last rows of 1 truncated episodes have no successor" in notes(data)
    assert has_guessed_spaces(data.facts)  # so an environment's spaces may replace them
    assert [one for one in check(data) if one.kind != "assumed"] == []


def test_every_transition_is_that_of_the_table():
    rows = import_table(ROWS, **HOW).transitions()
    np.testing.assert_array_equal(rows.obs[:, 0], [0, 1, 2, 10, 11])
    np.testing.assert_array_equal(rows.next_obs[:, 0], [1, 2, 2, 11, 12])
    np.testing.assert_array_equal(rows.last, [False, False, True, False, True])
    np.testing.assert_array_equal(rows.discount, [1, 1, 0, 1, 1])


def test_table_without_terminal_column_has_truncated_episodes():
    plain = {**HOW, "terminal": None}
    data = import_table(ROWS, **plain)
    assert columns(data)[0] == ([0, 1], [1, 2], [1, 1])
    assert "no column of terminations: all 2 episodes count as truncated" in notes(data)
    ended = import_table(ROWS, **plain, terminal_at_end=True)
    assert columns(ended) == [([0, 1, 0], [1, 2, 3], [1, 1, 0]), ([2, 0, 1], [4, 5, 6], [1, 1, 0])]
    with pytest.raises(Mistake, match="contradict each other"):
        import_table(ROWS, **HOW, terminal_at_end=True)


def test_table_with_next_obs_columns_keeps_every_row():
    table = changed(na=[1.0, 2.0, 3.0, 11.0, 12.0, 13.0], nb=ROWS["b"])
    data = import_table(table, **HOW, next_obs=["na", "nb"])
    assert first_obs(data) == [[0, 1, 2, 3], [10, 11, 12, 13]]
    assert columns(data)[1] == ([2, 0, 1], [4, 5, 6], [1, 1, 1])
    # the second row's successor is not the third row: a reset that was not recorded
    table["na"] = [1.0, 7.0, 3.0, 11.0, 12.0, 13.0]
    data = import_table(table, **HOW, next_obs="n?")
    assert first_obs(data) == [[0, 1, 7], [2, 3], [10, 11, 12, 13]]
    assert "in 1 rows the successor is not the next row's observation" in notes(data)


@pytest.mark.parametrize("flag", [2, 3])  # on the row with the last action, on the observation
def test_table_last_row_with_only_an_observation_is_next_obs(flag):
    nan = float("nan")
    table = {
        "id": [1, 1, 1, 1, 2, 2],
        "a": [0.0, 1.0, 2.0, 3.0, 10.0, 11.0],
        "u": [0.5, -0.5, 0.5, nan, 0.5, nan],
        "r": [1.0, 2.0, 3.0, nan, 4.0, nan],
        "done": [float(at == flag) for at in range(6)],
    }
    data = import_table(table, obs="a", action="u", reward="r", episode="id", terminal="done")
    assert first_obs(data) == [[0, 1, 2, 3], [10, 11]]
    assert [one.discount.tolist() for one in data] == [[1, 1, 0], [1]]
    assert data.action_space == spaces.Box(-1, 1, (1,), np.float32)
    assert "the last row of 2 episodes holds an observation only" in notes(data)


def test_table_rows_are_sorted_by_time_and_episode():
    order = [5, 0, 3, 2, 1, 4]
    table = {name: [cells[at] for at in order] for name, cells in ROWS.items()}
    data = import_table(table, **HOW, time="t")
    # episodes are numbered by their first row; the rows of both are apart
    assert first_obs(data) == [[10, 11, 12], [0, 1, 2, 2]]
    assert "rows of some episodes are apart: 5 pieces are put together to 2" in notes(data)
    assert "same time" not in notes(data)
    again = import_table(changed(t=[0, 0, 1, 0, 1, 2]), **HOW, time="t")
    assert "1 rows have the same time as the row before" in notes(again)


def test_table_time_gap_separates_episodes_and_parses_dates():
    times = ["2024-05-01T12:00:00", "2024-05-01 12:00:01", "2024-05-01T12:00:02+00:00"]
    times += ["2024-05-01T12:10:00Z", "2024-05-01T12:10:01Z", "2024-05-01T12:10:02Z"]
    plain = {"obs": "a", "action": "u", "reward": "r"}
    for table in (changed(t=times), changed(t=[0, 1, 2, 600, 601, 602])):
        data = import_table(table, **plain, time="t", gap=60)
        assert first_obs(data) == [[0, 1, 2], [10, 11, 12]]
        assert len(import_table(table, **plain, time="t", gap=1000)) == 1
    stamps = changed(t=np.array(["2024-05-01T12:00", "2024-05-01T12:01", "2024-05-01T12:02"] * 2,
                                "datetime64[s]"))  # fmt: skip
    assert len(import_table(stamps, **plain, episode="id", time="t", gap=60)) == 2
    with pytest.raises(Mistake, match="every episode has one row only"):
        import_table(stamps, **plain, episode="id", time="t", gap=59)
    with pytest.raises(Mistake, match=r"row 2: column 't' holds 'noon', which is neither"):
        import_table(changed(t=[0, "noon", 2, 3, 4, 5]), **plain, time="t", gap=1)


def test_table_flags_delimit_episodes_and_timeouts_truncate():
    plain = {"obs": "a", "action": "u", "reward": "r", "terminal": "done"}
    data = import_table(changed(cut=[0, 0, 0, 0, 1, 0]), **plain, timeout="cut")
    assert first_obs(data) == [[0, 1, 2, 2], [10, 11]]
    assert data.ended.tolist() == [True, False]
    text = changed(done=["false", "no", "True", "f", "F", "0"])
    assert first_obs(import_table(text, **plain)) == [[0, 1, 2, 2], [10, 11, 12]]
    with pytest.raises(Mistake, match=r"row 3: column 'done' holds 7; a flag is 0 or 1"):
        import_table(changed(done=[0, 0, 7, 0, 0, 0]), **plain)


def test_table_text_actions_become_sorted_discrete_choices(tmp_path):
    table = changed(u=["stay", "left", "stay", "right", "stay", "left"])
    data = import_table(table, tmp_path / "sorted", **HOW)
    assert columns(data)[0][0] == [2, 0, 2]  # left, right, stay
    assert Dataset(tmp_path / "sorted").facts.labels == {
        "obs": ["a", "b"],
        "action=u": ["left", "right", "stay"],
    }
    told = import_table(table, **HOW, discrete="u=stay,left,right,up")
    assert columns(told)[0][0] == [0, 1, 0]
    assert told.action_space == spaces.Discrete(4)
    with pytest.raises(Mistake, match=r"row 4: column 'u' holds 'right', .* stay, left; add it"):
        import_table(table, **HOW, discrete="u=stay,left")
    other = import_table(table, **HOW, discrete="u=stay,left,right")
    with pytest.raises(Mistake, match="number the choices of u differently: left, right"):
        concatenate([data, other])


def test_table_text_observations_become_one_hot():
    table = changed(w=["sun", "rain", "sun", "rain", "rain", "sun"])
    data = import_table(table, **{**HOW, "obs": "a,w"})
    assert data.facts.labels["obs"] == ["a", "w=rain", "w=sun"]
    assert data[0].obs.tolist() == [[0, 0, 1], [1, 1, 0], [2, 0, 1], [2, 0, 1]]


def test_table_integer_actions_become_discrete():
    def space(u, **how):
        return import_table(changed(u=u), **HOW, **how).action_space

    assert space([0, 1, 0, 3, 0, 1]) == spaces.Discrete(4)
    assert space([0, 1, 0, 3, 0, 1], continuous="u").shape == (1,)
    assert isinstance(space([0, 1000, 0, 3, 0, 1]), spaces.Box)  # too many to be choices
    assert isinstance(space([0, -1, 0, 3, 0, 1]), spaces.Box)
    few = import_table(changed(u=[0, 50, 100, 50, 0, 50]), **HOW, discrete="u")
    assert few.action_space == spaces.Discrete(3)
    assert few.facts.labels["action=u"] == ["0", "50", "100"]
    assert columns(few)[0][0] == [0, 1, 2]
    # -2.5 is in the last row of the truncated episode, whose action is not kept but was seen
    real = import_table(changed(u=[0.5, 1.5, 0.5, 1.0, 0.5, -2.5]), **HOW).action_space
    assert (real.low, real.high) == (np.float32(-2.5), np.float32(1.5))


def test_table_with_several_action_columns_is_multidiscrete():
    table = changed(v=[0, 1, 2, 3, 4, 4])
    both = import_table(table, **{**HOW, "action": "u,v"})
    assert both.action_space == spaces.MultiDiscrete([3, 5])
    assert both[0].action.tolist() == [[0, 0], [1, 1], [0, 2]]
    real = import_table(table, **{**HOW, "action": "u,v"}, continuous="u,v")
    assert real.action_space.high.tolist() == [2, 4]
    with pytest.raises(
        Mistake, match=r"actions u are choices and v real numbers; .*--continuous u"
    ):
        import_table(table, **{**HOW, "action": "u,v"}, continuous="v")


def test_missing_entries_are_named_or_left_out():
    nan = float("nan")
    table = changed(r=[1.0, nan, 3.0, 4.0, 5.0, 6.0], b=[0.5, 0.5, 0.5, 0.25, None, 0.25])
    with pytest.raises(Mistake, match=r"row 2: column 'r' is empty; 1 more rows .*--drop-incompl"):
        import_table(table, **HOW)
    data = import_table(table, **HOW, drop_incomplete=True)
    # row 2 has its observation, which ends the first piece; row 5 has none, so it is left out
    assert first_obs(data) == [[0, 1], [2, 2]]
    assert columns(data) == [([0], [1], [1]), ([0], [3], [0])]
    assert "2 rows with missing entries are left out" in notes(data)
    with pytest.raises(Mistake, match="row 3: column 'a' is infinite"):
        import_table(changed(a=[0, 1, np.inf, 3, 4, 5]), **HOW)
    with pytest.raises(Mistake, match="row 2: column 'id' is empty, so that the row belongs to no"):
        import_table(changed(id=[1, None, 1, 2, 2, 2]), **HOW)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"reward": None}, "no column of rewards is named; add --reward COLUMN, or --reward 0"),
        ({"obs": ()}, "no column of observations is named; add --obs COLUMN"),
        ({"obs": "dome,b"}, "no column 'dome' for --obs; did you mean done"),
        ({"obs": "z*"}, r"no column 'z\*' for --obs; it has id, t, a, b, u, r, done"),
        ({"episode": (), "terminal": None}, "nothing says where episodes end; add --episode"),
        ({"gap": 3.0}, "--gap needs a positive number and --time"),
        ({"discrete": "a"}, "--discrete a: that is no column of --action"),
        ({"next_obs": "a"}, "--next-obs names 1 columns and --obs 2"),
        ({"discrete": "u", "continuous": "u"}, "both name u"),
        ({"reward": "*"}, "--reward takes one column"),
        ({"one_episode": True}, "--one-episode contradicts --episode"),
    ],
)
def test_invalid_table_columns_are_refused_in_one_line(options, words):
    with pytest.raises(Mistake, match=words) as caught:
        import_table(ROWS, **{**HOW, **options})
    assert "\n" not in str(caught.value)


def test_table_wildcard_observations_exclude_named_columns():
    data = import_table(ROWS, **{**HOW, "obs": "*"})
    assert data.facts.labels["obs"] == ["t", "a", "b"]
    constant = import_table(ROWS, **{**HOW, "reward": 0}, extra="t")
    assert constant.returns.tolist() == [0, 0]
    assert constant[0].extras["t"].tolist() == [0, 1, 2]
    assert "columns not read: r" in notes(constant)


def test_csv_parquet_frames_and_dicts_give_the_same_dataset(tmp_path):
    frame = pandas.DataFrame(changed(u=["l", "r", "l", "s", "l", "r"]))
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_csv(tmp_path / "b.tsv", index=False, sep="\t")
    (tmp_path / "c.csv.gz").write_bytes(gzip.compress((tmp_path / "a.csv").read_bytes()))
    semicolons = (tmp_path / "a.csv").read_text().replace(",", ";").replace(".", ",")
    (tmp_path / "d.csv").write_text("\ufeff" + semicolons, encoding="utf-8")
    frame.to_parquet(tmp_path / "e.parquet")
    arrow = pyarrow.Table.from_pandas(frame)
    nullable = frame.convert_dtypes().assign(u=frame["u"].astype("category"))

    class Interchange:
        def __dataframe__(self, *words, **options):
            return frame[["id", "a", "b", "r", "done"]].__dataframe__(*words, **options)

    plain = import_table(frame, tmp_path / "out", **HOW).hash
    for table in [*sorted(tmp_path.glob("[a-e].*")), arrow, nullable, dict(frame)]:
        assert import_table(table, **HOW).hash == plain, table
    other = {**HOW, "action": "id"}
    assert import_table(Interchange(), **other).hash == import_table(frame, **other).hash


def test_lists_in_a_column_are_vectors(tmp_path):
    frame = pandas.DataFrame(ROWS).assign(x=[[1.0, 2.0]] * 5 + [[3.0, 4.0]])
    frame.to_parquet(tmp_path / "a.parquet")
    for table in (frame, tmp_path / "a.parquet"):
        data = import_table(table, **{**HOW, "obs": "x,a"})
        assert data.facts.labels["obs"] == ["x[0]", "x[1]", "a"]
        assert data[1].obs[-1].tolist() == [3, 4, 12]
    with pytest.raises(Mistake, match="lists of different lengths"):
        import_table(frame.assign(x=[[1.0]] * 5 + [[3.0, 4.0]]), **{**HOW, "obs": "x"})


def test_tables_are_read_in_pieces(tmp_path, monkeypatch):
    random = np.random.default_rng(0)
    count = 500
    frame = pandas.DataFrame({
        "id": np.repeat(np.arange(20), 25), "a": random.normal(size=count),
        "b": random.normal(size=count), "u": random.integers(3, size=count).astype(str),
        "r": random.normal(size=count), "done": np.arange(count) % 50 == 49,
    })  # fmt: skip
    shuffled = frame.assign(t=np.arange(count)).sample(frac=1.0, random_state=1)
    shuffled.to_csv(tmp_path / "log.csv", index=False)
    shuffled.to_parquet(tmp_path / "log.parquet")
    names = ("log.csv", "log.parquet")
    whole = [import_table(tmp_path / name, **HOW, time="t").hash for name in names]
    for module in (table_files, table_episodes):
        monkeypatch.setattr(module, "BLOCK_ROWS", 37)
    pieces = [import_table(tmp_path / name, **HOW, time="t").hash for name in names]
    assert len({*whole, *pieces}) == 1


def test_several_tables_are_joined_without_sharing_episodes(tmp_path):
    second = changed(u=[4, 0, 0, 0, 0, 0])
    data = import_table([ROWS, second], tmp_path / "out", **HOW)
    assert [one.source.name for one in data] == ["the table"] * 4
    assert data.rows == 10
    assert data.action_space == spaces.Discrete(5)  # of both


def test_damaged_csv_file_is_named_with_its_line(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("id,a,u,r\n1,0.5,0,1\n1,0.5\n")
    how = {"obs": "a", "action": "u", "reward": "r", "episode": "id"}
    with pytest.raises(Mistake, match=r"a.csv, line 3: 2 cells, but the first line names 4"):
        import_table(path, **how)
    path.write_text("id,a,u,r\n1,0.5,0,1\n1,oops,0,1\n1,0.5,0,1\n")
    said = r"a\.csv, row 2: column 'a' holds 'oops', which is not a number\. .*--drop-incomplete"
    with pytest.raises(Mistake, match=said):
        import_table(path, **how)
    path.write_bytes(b"id,a,u,r\n1,\xff\xfe,0,1\n")
    with pytest.raises(Mistake, match="is no CSV file in UTF-8"):
        import_table(path, **how)
    path.write_text("")
    with pytest.raises(Mistake, match="is empty"):
        import_table(path, **how)
    (tmp_path / "a.parquet").write_bytes(b"PAR1 but not quite")
    with pytest.raises(Mistake, match="cannot be read as Parquet"):
        import_table(tmp_path / "a.parquet", **how)
    path.write_text("id,a,u,r\n1,0.5,0,1\n2,0.5,0,1\n")
    with pytest.raises(Mistake, match="every episode has one row only"):
        import_table(path, **how)


def test_an_environments_spaces_replace_the_guess(tmp_path):
    table = {f"x{at}": [0.1] * 4 for at in range(3)} | {"u": [0.5, 1.5, -0.5, 0.0], "r": [0.0] * 4}
    how = {"obs": "x*", "action": "u", "reward": "r", "one_episode": True}
    data = import_table(table, tmp_path / "out", **how, environment="Pendulum-v1")
    assert data.action_space.high.tolist() == [2.0]
    assert data.facts.environment == "Pendulum-v1"
    assert json.loads((tmp_path / "out" / "dataset.json").read_text())["facts"]["labels"]
    with pytest.raises(Mistake, match=r"obs space is .* --environment ENV"):
        import_table(table, **{**how, "obs": "x0"}, environment="Pendulum-v1")


def test_columns_may_be_named_by_numbers_as_pandas_does():
    columns = np.random.default_rng(0).normal(size=(4, 8))
    frame = dict(enumerate([*columns, np.repeat([0, 1], 4), np.tile([0, 0, 0, 1], 2)]))
    numbered = {"obs": [0, np.int64(1)], "action": 2, "episode": 4, "terminal": 5}
    named = {"obs": "0,1", "action": "2", "episode": "4", "terminal": "5"}
    found, wanted = (import_table(frame, reward="3", **how) for how in (numbered, named))
    assert found.hash == wanted.hash
