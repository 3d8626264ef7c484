"""Scenes that wait for calls keep no other scene waiting, and one that hangs is lost alone."""

import sqlite3
import threading

import jax
from scripted_agent import ScriptedAgent

from sterling.language.engine.played_scenes import play_scenes
from sterling.language.scene import BaseScene, Message
from sterling.language.scene_dialogue import ChatSettings
from sterling.language.tasks import find_family
from sterling.language.tokenizer import Tokenizer
from sterling.language.tools.tool_calls import find_calls
from sterling.language.worlds.tool_use import ToolUse

TOKENIZER = Tokenizer.characters()
VOICE = ChatSettings(TOKENIZER, limit=24, context=400, patience=20.0)


class Caller(ScriptedAgent):
    """Calls the tool once, then answers."""

    def answer(self, ask, seed, row):
        heard = TOKENIZER.decode(ask.ids)
        said = "done" if "<look>" in heard else "<look>word</look>"
        return [*TOKENIZER.encode(said), TOKENIZER.end]


class Errand(BaseScene):
    """One call, whose result is the reward."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.ask(0, Message("user", "go"))

    def hear(self, seat, text):
        self.call(self.function, lambda found: self.judge(seat, found))


class Counter(BaseScene):
    """Three turns without calls; it notes when it has ended."""

    def __init__(self, ended):
        super().__init__()
        self.ended = ended
        self.ask(0, Message("user", "go"))

    def hear(self, seat, text):
        self.judge(seat, 1.0)
        if len(self.verdicts[seat]) == 3:
            self.ended.set()
        else:
            self.ask(seat, Message("user", "on"))


class Speaker(ScriptedAgent):
    """Says "a" to everything."""

    def __init__(self, seeds=1):
        self.seeds = seeds

    def answer(self, ask, seed, row):
        return [*TOKENIZER.encode("a"), TOKENIZER.end]


def played(*scenes, voice=VOICE):
    keys = jax.random.split(jax.random.key(0), len(scenes))
    return play_scenes(Speaker(len(scenes)), scenes, voice, keys)


def rewards(lines):
    return [line.failed or line.reward for line in lines]


def test_calls_of_all_scenes_of_all_seeds_run_at_once():
    together = threading.Barrier(6)

    def call():
        together.wait(20)  # none passes before all six run
        return 1.0

    first, second = played([Errand(call) for _ in range(4)], [Errand(call) for _ in range(2)])
    assert rewards(first) + rewards(second) == [1.0] * 6


def test_scene_that_waits_keeps_no_other_one_waiting():
    ended = threading.Event()
    waits = Errand(lambda: float(ended.wait(20)))  # until the other has had all its turns
    assert rewards(*played([waits, Counter(ended)])) == [1.0, 3.0]


def test_call_that_hangs_costs_its_own_scene():
    release = threading.Event()
    scenes = [Errand(lambda: release.wait(60)), Errand(lambda: 1.0), Counter(threading.Event())]
    quick = ChatSettings(TOKENIZER, limit=24, context=400, patience=0.2)
    lost, *others = rewards(*played(scenes, voice=quick))
    release.set()
    assert lost == "TimeoutError: took longer than 0.2 s"
    assert others == [1.0, 3.0]


def test_call_that_raises_costs_its_own_scene():
    def fail():
        raise KeyError("mine")

    assert rewards(*played([Errand(fail), Errand(lambda: 0.5)])) == ["KeyError: 'mine'", 0.5]


def test_call_in_a_scene_that_is_played_alone_is_made_at_once():
    scene = Errand(lambda: 0.25)
    scene.say("a")
    assert [each.reward for each in scene.verdicts[0]] == [0.25]


def test_tool_with_a_connection_of_the_main_thread_is_called_there():
    """SQLite refuses it in another thread; the model would read that as the tool's answer."""
    base = sqlite3.connect(":memory:")
    threads = []

    def look(word: str) -> str:
        """Look a word up."""
        threads.append(threading.current_thread() is threading.main_thread())
        return str(base.execute("select 7").fetchone()[0])

    world = ToolUse(find_family("arithmetic"), [look])
    assert find_calls("<look>x</look>", world.tools)
    keys = jax.random.split(jax.random.key(0), 1)
    lines = play_scenes(Caller(), [[world.begin(seed, 0) for seed in range(2)]], VOICE, keys)[0]
    heard = [TOKENIZER.decode(line.ids) for line in lines]
    assert all("7" in each and "thread" not in each for each in heard)
    assert threads.count(True) == 2
