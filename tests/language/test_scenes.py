"""Worlds of text: every scene ends in time, judges all that is said, and can be solved."""

import json
import random

import gymnasium
import pytest

from sterling.language import worlds
from sterling.language.chat_template import PLAIN_TEMPLATE, ChatTemplate
from sterling.language.scene import Message, Scene, TextWorld
from sterling.language.worlds.gymnasium_text import TextGym
from sterling.language.worlds.tool_use import ToolUse
from sterling.types import Mistake

WORLDS = (
    *("reverse-text", "countdown", "try-again:sort-letters", "try-again:arithmetic,attempts=5"),
    *("tools:arithmetic", "tools:reverse-text,limit=1", "tools:chain,describe=true,tools=calc"),
    *("game:nim", "game:tic-tac-toe", "gym:FrozenLake-v1", "gym:CliffWalking-v1,turns=20"),
    *("gym:Blackjack-v1", "gym:CartPole-v1"),
)
WORDS = (
    *("", "up", "2", "b1", "a1", "right", "42", "é\0\n", "<calc>1+1</calc>", "<calc>", "</calc>"),
    *("<tool_call>{}</tool_call>", '<tool_call>{"name":"calc"}</tool_call>', "x" * 5000, " 5 "),
    *("<calc>9**9**9</calc>", "{{", "<think>", "\ud800", "1/0", "<python>"),
)


def play(scene: Scene, talk) -> list[str]:
    """Everything said in a scene."""
    said = []
    while scene.turn is not None:
        said.append(talk(scene))
        scene.say(said[-1])
    return said


@pytest.mark.parametrize("name", WORLDS)
def test_text_world_scenes_end_with_one_verdict_per_answer(name):
    world = worlds.find_world(name)
    assert isinstance(world, TextWorld)
    for seed in range(25):
        dice = random.Random(seed)
        scene, spoken = world.begin(seed, dice.choice(world.levels)), [0] * world.seats

        def talk(scene, dice=dice, world=world, spoken=spoken):
            assert isinstance(scene, Scene)
            assert all(isinstance(each, Message) for each in scene.turn.messages)
            assert scene.turn.messages
            spoken[scene.turn.seat] += 1
            if hasattr(world, "solve") and dice.random() < 0.3:
                return world.solve(scene)
            return "".join(dice.choices(WORDS, k=dice.choice([1, 1, 1, 3])))

        play(scene, talk)
        assert [len(each) for each in scene.verdicts] == spoken
        assert max(spoken) <= world.turns
        assert all(0.0 <= one.reward <= 1.0 for each in scene.verdicts for one in each)
        with pytest.raises(Mistake, match="the scene is over"):
            scene.say("one more")


@pytest.mark.parametrize("name", WORLDS)
def test_text_world_scene_is_reproducible(name):
    world, runs = worlds.find_world(name), []
    for _ in range(2):
        scene, dice, heard = world.begin(7, world.levels[-1]), random.Random(1), []

        def talk(scene, dice=dice, heard=heard):
            heard.append(scene.turn)
            return dice.choice(WORDS[1:8])

        play(scene, talk)
        runs.append((heard, scene.verdicts))
    assert runs[0] == runs[1]
    others = [world.begin(seed, world.levels[-1]).turn for seed in range(20)]
    fixed = name.startswith(("gym:FrozenLake", "gym:Cliff"))  # they begin in one place
    assert len({str(each) for each in others}) > (0 if fixed else 1)


@pytest.mark.parametrize("name", [name for name in WORLDS if not name.startswith(("g", "c"))])
def test_text_world_solutions_get_full_reward(name):
    world = worlds.find_world(name)
    for level in world.levels:
        for seed in range(5):
            scene = world.begin(seed, level)
            play(scene, world.solve)
            assert scene.verdicts[0][-1].reward == 1.0


def test_try_again_world_discounts_later_attempts():
    world = worlds.find_world("try-again:reverse-text", attempts=3, keep=0.5)
    for wrong in range(3):
        scene = world.begin(0, 0)
        for _ in range(wrong):
            scene.say("zzz")
            assert scene.turn.messages == (Message("user", "wrong, try again"),)
        scene.say(world.solve(scene))
        assert scene.turn is None
        assert [each.reward for each in scene.verdicts[0]] == [0.0] * wrong + [0.5**wrong]
    scene = world.begin(0, 0)
    for _ in range(3):
        scene.say("zzz")
    assert scene.turn is None
    assert sum(each.reward for each in scene.verdicts[0]) == 0


def test_tool_world_scene_calls_a_tool_then_answers():
    world = worlds.find_world("tools:arithmetic")
    scene = world.begin(3, 4)
    task = scene.turn.messages[-1].content
    assert scene.turn.messages == (Message("user", task),)  # no words that a small model must read
    assert world.solve(scene) == f"<calc>{task.removesuffix('=')}</calc>"
    scene.say(world.solve(scene))
    assert scene.turn.messages[0].role == "tool"
    scene.say(scene.turn.messages[0].content)
    assert [(v.reward, v.reason) for v in scene.verdicts[0]] == [(0.0, "call"), (1.0, "right")]


def test_tool_world_limits_calls_and_reports_faulty_ones():
    world = worlds.find_world("tools:arithmetic,limit=3")
    scene = world.begin(0, 0)
    for text, reply in (
        ("<calc>1+", "error: <calc> is never closed"),
        ("<calc>1/0</calc>", "error: division by zero"),
        ("<calc>1</calc>" * 6, "error: at most 4 calls at once"),
        ("<calc>1</calc>", ""),
    ):
        scene.say(text)
        assert not reply or scene.turn.messages[-1] == Message("tool", reply)
    assert [v.reason for v in scene.verdicts[0]] == [
        *("malformed call", "failed call", "failed call", "too many calls")
    ]


def test_tool_world_describes_its_tools_and_accepts_functions():
    def shout(text: str) -> str:
        """Write in capitals."""
        return text.upper()

    world = ToolUse(worlds.find_world("copy-text").family, [shout], describe=True)
    scene = world.begin(0, 0)
    system = scene.turn.messages[0]
    assert system.role == "system"
    assert [json.loads(each) for each in system.tools] == [world.tools["shout"].schema]
    shown = ChatTemplate(PLAIN_TEMPLATE, {}, "plain").render(scene.turn.messages, reply=True)
    assert "Write in capitals." in shown
    assert shown.endswith(f"</tool_call>.\nuser:\n{scene.task.prompt}\nassistant:\n")
    scene.say('<tool_call>{"name": "shout", "arguments": {"text": "hi"}}</tool_call>')
    assert scene.turn.messages == (Message("tool", "HI"),)


@pytest.mark.parametrize("form", ["<think>\n{wrong}\n</think>\n\n{right}", "I say #### {right}",
                                  "<answer>{right}</answer>"])  # fmt: skip
@pytest.mark.parametrize(
    "name", ["game:nim", "game:tic-tac-toe", "gym:FrozenLake-v1", "arithmetic"]
)
def test_every_text_world_ignores_thoughts_and_reads_answer_markers(name, form):
    world = worlds.find_world(name)
    scene = world.begin(0, 0)
    scene.say(form.format(wrong="z9", right=world.solve(scene)))
    assert scene.verdicts[0][0].reason in ("moved", "right")
    scene = world.begin(0, 0)
    scene.say(f"<think>{world.solve(scene)}")  # a thought that never ends says nothing
    assert scene.verdicts[0][0].reason in ("illegal", "invalid", "no answer")


@pytest.mark.parametrize("thought", ["<calc>1+1</calc>", "<tool_call> is how one calls"])
def test_tool_calls_inside_thoughts_are_ignored(thought):
    world = worlds.find_world("tools:arithmetic")
    scene = world.begin(0, 0)
    scene.say(f"<think>{thought}</think>\n{world.family.solve(scene.task)}")
    assert scene.turn is None
    assert [verdict.reason for verdict in scene.verdicts[0]] == ["right"]


def test_gymnasium_text_world_takes_word_actions():
    world = worlds.find_world("gym:FrozenLake-v1", is_slippery=False)
    scene = world.begin(0, 0)
    assert scene.turn.messages == (Message("user", "left/down/right/up? 0"),)
    for said in ("1", " DOWN ", "left"):  # down, down, and against the edge
        scene.say(said)
    assert scene.turn.messages == (Message("user", "8"),)
    assert scene.verdicts[0][-1].reason == "moved"
    scene.say("down")
    assert scene.turn is None  # a hole
    assert (scene.verdicts[0][-1].reward, scene.verdicts[0][-1].reason) == (0.0, "ended")


def test_gymnasium_text_world_penalises_invalid_actions():
    world = worlds.find_world("gym:FrozenLake-v1", is_slippery=False)
    scene = world.begin(0, 0)
    scene.say("jump")
    assert scene.turn.messages == (Message("user", "say left/down/right/up"),)
    play(scene, world.solve)
    assert len(scene.verdicts[0]) == 7
    assert scene.verdicts[0][0].reason == "invalid"
    assert [v.reward for v in scene.verdicts[0][-2:]] == [0.0, 0.95]


@pytest.mark.parametrize(
    ("name", "level"),
    [("FrozenLake-v1,is_slippery=false", 1.0), ("CliffWalking-v1", 1.0), ("Taxi-v4", 0.9)],
)
def test_gymnasium_text_world_solver_plans_tabular_environments(name, level):
    if name.partition(",")[0] not in gymnasium.registry:
        name = name.replace("v4", "v3")  # Gymnasium renamed it
    world = worlds.find_world(f"gym:{name}")
    scene = world.begin(1, 0)
    play(scene, world.solve)
    assert scene.verdicts[0][-1].reward >= level
    assert scene.verdicts[0][-1].reason == "ended"
    assert not hasattr(worlds.find_world("gym:CartPole-v1"), "solve")


def test_gymnasium_text_world_takes_a_describe_function():
    world = TextGym("CartPole-v1", describe=lambda obs: "left" if obs[2] > 0 else "right", turns=5)
    scene = world.begin(0, 0)
    assert scene.turn.messages[0].content in ("left/right? left", "left/right? right")
    play(scene, lambda scene: "left")
    assert scene.verdicts[0][-1].reward == 1.0  # five steps are easily survived


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("try-agan:reverse-text", "did you mean try-again:reverse-text"),
        ("tool:arithmetic", "did you mean tools:arithmetic"),
        ("tools:arithmetik", "did you mean arithmetic"),
        ("revers-text", "did you mean reverse-text"),
        ("game:nimm", "did you mean game:nim"),
        ("gym:FrozenLak-v1", "did you mean FrozenLake-v1"),
        ("gym:MountainCarContinuous-v0", "use one that is Discrete"),
        ("gym:Acrobot-v1", "the range of returns"),
        ("gym:FrozenLake-v1,slippery=false", "cannot make FrozenLake-v1"),
        ("gym:CliffWalking-v1,turns=5", "turns must be at least 1"),
        ("gym:FrozenLake-v1,desc=[]", "cannot make FrozenLake-v1"),
        ("gym:FrozenLake-v1,describe=5", "describe=5 of FrozenLake-v1 is not a function"),
        ("gym:FrozenLake-v1,words=ldru", "words='ldru' of .* are not texts"),
        ("gym:FrozenLake-v1,words=5", "words=5 of .* are not texts"),
        ("gym:MountainCar-v0,returns=5", "are not two numbers; give the worst and the best"),
        ("gym:MountainCar-v0,returns=(1,2,3)", "are not two numbers"),
        ("gym:MountainCar-v0,returns=(1,True)", "are not two numbers"),
        ("tools:arithmetic,limt=2", "did you mean limit"),
        ("tools:arithmetic,limit=0", "must be at least 1, not 0"),
        ("try-again:arithmetic,keep=2", "not 2"),
        (
            "try-again:arithmetic,attempts=many",
            "attempts of .* must be of type int; got 'many'",
        ),
        ("tools:arithmetic,describe=1", "describe of tools:arithmetic must be of type bool; got 1"),
        ("arithmetic,speed=2", "has no options"),
    ],
)
def test_unknown_text_world_name_suggests_the_nearest(name, words):
    with pytest.raises(Mistake, match=words) as mistake:
        worlds.find_world(name)
    assert "\n" not in str(mistake.value)


def test_user_text_world_module_that_fails_is_named(tmp_path, monkeypatch):
    (tmp_path / "places.py").write_text("def make():\n    return 1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(Mistake, match=r"places:make raises ZeroDivisionError: division by zero"):
        worlds.find_world("places:make")
    with pytest.raises(Mistake, match="places has no 'mke'; did you mean make"):
        worlds.find_world("places:mke")


def test_every_listed_text_world_name_is_found():
    for name in worlds.world_names():
        assert worlds.find_world(name).name == name
