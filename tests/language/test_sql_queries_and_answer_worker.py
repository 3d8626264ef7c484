"""Queries that try to win by what the machine does, not by what the tables hold."""

import time
from pathlib import Path

import pytest

import sterling
from sterling.experience.language.conversation_rollout import ConversationHost
from sterling.language import tasks, worlds
from sterling.language.adapters.answer_worker import Worker, WorkerFault
from sterling.language.engine.transcript import Transcript
from sterling.language.scene_dialogue import ChatSettings
from sterling.language.task import RIGHT, Verdict
from sterling.language.tasks import sql_tasks
from sterling.language.tokenizer import Tokenizer
from sterling.language.tools import sql_database
from sterling.training.language.context_length import warn_of_failed_scenes
from sterling.types import Generations

PEOPLE = [{"name": "people", "columns": ["name", "age"], "rows": [["ada", 30], ["bo", 40]]}]


@pytest.mark.parametrize(
    "term",
    [
        "printf('%.*c', 1000000, 'x')",
        "format('%.*c', 1000000, 'x')",
        "printf('%1000000d', 1)",
        *("date('now')", "time('now')", "datetime()", "julianday('now')", "unixepoch()"),
        *("strftime('%s', 'now')", "current_timestamp", "current_date", "current_time"),
        *("random()", "randomblob(9)", "zeroblob(9)", "hex(name)", "quote(name)", "char(65)"),
        *("replace(name, 'a', 'aaaa')", "group_concat(name)", "json_array(1)", "'{}'->>'a'"),
        *("sqlite_version()", "sqlite_source_id()", "total_changes()", "changes()"),
        *("last_insert_rowid()", "sqlite_compileoption_get(1)", "load_extension('x')"),
        *("name glob 'a*'", "soundex(name)", "unicode(name)", "likely(1)"),
        *("(select count(*) from sqlite_master)", "(select 1 from pragma_table_list)"),
        *("(select 1 from json_each('[1]'))", "(select count(*) from sqlite_schema)"),
    ],
)
def test_sql_functions_beyond_the_tables_are_forbidden(term):
    """Also beside the right answer, where it could decide when a verdict comes."""
    for query in (f"select {term} from people", f"select name from people where {term} is not 7"):
        found = sql_database.run_query(PEOPLE, query)
        assert found.rows is None
        assert found.reason in ("forbidden", "error")  # an error: this SQLite lacks the function


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("select count(*) from people", [(2,)]),
        ("select upper(name) from people where name like 'A%'", [("ADA",)]),
        ("with old as (select * from people where age>30) select name from old", [("bo",)]),
        ("select name, rank() over (order by age desc) from people", [("bo", 1), ("ada", 2)]),
        ("select round(avg(age), 1) from people", [(35.0,)]),
        ("select p.name from people p join people q on p.age<q.age", [("ada",)]),
        ("select max(age) from (select age from people)", [(40,)]),
    ],
)
def test_ordinary_sql_queries_are_allowed(query, rows):
    assert sql_database.run_query(PEOPLE, query) == (rows, "")


def doubled(levels: int) -> str:
    """A query that is twice as long to prepare with each level; it has no step before that."""
    parts = [f"t{n} as (select 1 from t{n - 1} x,t{n - 1} y)" for n in range(1, levels)]
    return f"with t0 as (select 1),{','.join(parts)} select 1 from t{levels - 1}"


def test_sql_query_slow_to_prepare_is_killed(monkeypatch):
    """No count of steps and no clock within SQLite sees it; the next verdict is as ever."""
    family = tasks.find_family("sql")
    task = family.sample(0, 0)
    assert family.verify(task, family.solve(task)) == RIGHT
    before = time.perf_counter()
    with monkeypatch.context() as brief:
        brief.setattr(sql_tasks, "SECONDS", 1.0)
        assert family.verify(task, doubled(40)) in (Verdict(0.0, "timeout"), Verdict(0.0, "oom"))
    assert time.perf_counter() - before < 60.0
    assert family.verify(task, family.solve(task)) == RIGHT


def test_sql_like_pattern_length_is_limited():
    assert (
        sql_database.run_query(PEOPLE, f"select name like '{'%a' * 500}' from people").reason
        == "error"
    )


def test_correct_sql_query_with_a_costly_term_is_forbidden():
    family = tasks.find_family("sql")
    task = family.sample(3, 0)
    burden = "printf('%.*c', 900000000, 'x') is not 'y'"
    assert family.verify(task, f"{family.solve(task)} and {burden}") == Verdict(0.0, "forbidden")


@pytest.fixture
def _judges(monkeypatch):
    """Judges of tests can be imported by a process of their own."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


@pytest.mark.usefixtures("_judges")
def test_answer_worker_that_reads_no_input_times_out():
    """A question longer than a pipe holds would wait for as long as the judge likes."""
    worker = Worker("judges:sleeping", None, 60.0)
    assert worker.ask(0.0) is None
    worker._channels[0]._connection.sendall(b"[1, 900.0, 600.0]\n")
    before = time.perf_counter()
    with pytest.raises(WorkerFault, match="hung: its process reads no questions"):
        worker.ask("x" * 2**20, 0.5)
    assert time.perf_counter() - before < 60.0


ANSWERS = {
    "text": "its answer cannot be read",
    "deep": "its answer cannot be read",
    "long": "its answer is too long",
}


@pytest.mark.usefixtures("_judges")
@pytest.mark.parametrize("name", ANSWERS)
def test_malformed_answer_worker_reply_is_a_worker_fault(name):
    worker = Worker("judges:rambling", None, 60.0)
    with pytest.raises(WorkerFault, match=ANSWERS[name]):
        worker.ask(name)
    worker.close()


def test_timed_out_verdicts_are_counted_in_one_line(capsys):
    world = worlds.find_world("sql")
    late, soon = Verdict(0.0, "timeout"), Verdict(1.0, "right")
    lines = [Transcript(0, 0, verdicts=(late, late)), Transcript(1, 0, verdicts=(soon,))]
    host = ConversationHost(
        world, ChatSettings(Tokenizer.characters(), limit=9, context=99), Generations(1, 1), (0,)
    )
    for _ in range(2):
        host.note(lines)
    host.close()
    host.close()
    assert capsys.readouterr().err == (
        "4 verdicts of sql ran past their time limit: each is worth 0\n"
    )
    assert warn_of_failed_scenes([lines, lines[1:]]) == [lines, lines[1:]]
    assert capsys.readouterr().err == "2 verdicts ran past their time limit: each is worth 0\n"


LATE = """
from sterling.language.task import Task, Verdict

count = 8

def sample(seed, level):
    return {"prompt": f"{seed}=", "answer": seed}

def verify(task, response):
    return Verdict(0.0, "timeout") if task.answer % 2 else Verdict(1.0, "right")
"""


@pytest.mark.slow
def test_grpo_run_reports_timed_out_verdicts(tmp_path, capsys):
    file = tmp_path / "late.py"
    file.write_text(LATE)
    few = {"prompts": 8, "group": 2, "limit": 2, "evaluate_episodes": 8}
    sterling.train("grpo", str(file), model="nano", updates=1, **few, out=tmp_path / "run")
    said = capsys.readouterr().err
    assert f"8 verdicts of {file} ran past their time limit: each is worth 0" in said
    assert "\n4 verdicts ran past their time limit: each is worth 0" in f"\n{said}"
