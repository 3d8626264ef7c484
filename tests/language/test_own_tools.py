"""Tools of a user's own file, by the names of environments, and how settings store these names."""

import pytest

from sterling.language import worlds
from sterling.lookup import user_imports
from sterling.training.config import user_code_words
from sterling.types import Mistake

SHELF = '''
def price(item: str) -> int:
    """Return the price of an item."""
    return {"tea": 3}[item]

def sample(seed, level):
    return {"prompt": "tea?", "answer": 3}

def verify(task, response):
    return response == "3"

class Tasks:
    tools = (price, "calc")
    sample, verify = staticmethod(sample), staticmethod(verify)

def make_list():
    return [price]
'''
BARE = SHELF[: SHELF.index("def sample")]
WORLD = """
from sterling.language.worlds import find_world

def make_world():
    return find_world("try-again:reverse-text")
"""


@pytest.fixture(name="shelf")
def _shelf(tmp_path, monkeypatch):
    """A folder with files of tools."""
    monkeypatch.chdir(tmp_path)
    for name, code in (("shelf", SHELF), ("world", WORLD), ("bare", BARE)):
        (tmp_path / f"{name}.py").write_text(code)
    (tmp_path / "listed.py").write_text(f"{SHELF}\ntools = [price]\n")
    (tmp_path / "q.jsonl").write_text('{"question": "tea?", "answer": 3}\n')
    return tmp_path


@pytest.mark.parametrize(
    ("name", "tools"),
    [
        ("tools:shelf.py:make_list", ["price"]),
        ("tools:shelf.py:Tasks", ["price", "calc"]),
        ("tools:listed.py", ["price"]),
        ("tools:q.jsonl,tools=shelf.py:make_list", ["price"]),
        ("tools:q.jsonl,tools=calc+bare.py:price,limit=2", ["calc", "price"]),
        ("tools:shelf.py:Tasks,tools=calc", ["calc"]),
        ("tools:shelf.py", ["calc", "python"]),
    ],
)
def test_tools_of_a_users_file_are_called(shelf, name, tools):
    world = worlds.find_world(name)
    assert list(world.tools) == tools
    scene = world.begin(0, 0)
    assert scene.turn.messages[-1].content == "tea?"
    scene.say("<price>tea</price>" if "price" in tools else "<calc>1+2</calc>")
    assert scene.turn.messages[-1].content == "3"
    assert [each.reason for each in scene.verdicts[0]] == ["call"]


def test_tools_name_of_a_users_world_is_that_world(shelf):
    assert worlds.find_world("tools:world.py:make_world").name == "try-again:reverse-text"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tools:q.jsonl,tools=bare.py:none", "has no 'none'; it has price"),
        ("tools:arithmetic,tools=none.py:make", "there is no file none.py"),
        ("tools:only.py:make", r"makes tools, and its file has no questions: add sample\(seed"),
    ],
)
def test_tools_of_a_users_file_are_refused_in_one_line(shelf, name, said):
    (shelf / "only.py").write_text(BARE + "def make():\n  return [price]\n")
    with pytest.raises(Mistake, match=said):
        worlds.find_world(name)


def test_settings_hold_absolute_paths_and_hashes_of_the_files_of_tools(shelf):
    name = "tools:shelf.py:make_list,tools=calc+bare.py:price,limit=2"
    stored = user_code_words.environment_reference(name)
    assert stored == (f"tools:{shelf}/shelf.py:make_list,tools=calc+{shelf}/bare.py:price,limit=2")
    assert user_imports.short_name(stored) == "tools:shelf:make_list,tools=calc+bare:price,limit=2"
    code = user_code_words.to_json("grpo", stored)["code"]
    assert set(code) == {f"{shelf}/shelf.py", f"{shelf}/bare.py"}
    again = user_code_words.environment_reference("try-again:shelf.py")
    assert again == f"try-again:{shelf}/shelf.py"
    assert worlds.find_world(stored).turns == 3
