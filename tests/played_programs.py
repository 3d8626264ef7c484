"""Runs of agent programs, played with answers that a test writes."""

import json
import os
import sys
import threading
from concurrent.futures import Future
from pathlib import Path

import jax
from scripted_agent import ScriptedAgent, ScriptedSampler

from sterling.language.adapters.jsonl_tasks import JsonlTasks
from sterling.language.agent_programs.program_world import ProgramWorld
from sterling.language.engine.played_scenes import play_scenes
from sterling.language.scene_dialogue import ChatSettings
from sterling.language.tokenizer import Tokenizer
from sterling.language.worlds.judged_questions import JudgedQuestions

TOKENIZER = Tokenizer.characters()
VOICE = ChatSettings(TOKENIZER, limit=4, context=60, contexts=4, patience=20.0)
PROGRAM = Path(__file__).parent / "language" / "fixtures" / "agent_program.py"
COMMAND = f"{sys.executable} {PROGRAM}"


class Counting(ScriptedAgent):
    """Says a letter for each token that it has read, up to three."""

    def answer(self, ask, seed, row):
        said = "abc"[: 1 + len(ask.ids) % 3]
        return [*TOKENIZER.encode(said), TOKENIZER.end]


class Letters(ScriptedAgent):
    """Always says the same."""

    def __init__(self, said="a"):
        self.said = said

    def answer(self, ask, seed, row):
        return [*TOKENIZER.encode(self.said), TOKENIZER.end]


class Late(Letters):
    """Says the same, a while later."""

    def __init__(self, said="a", seconds=0.3):
        super().__init__(said)
        self.seconds = seconds

    def samplers(self, shapes):
        return [LateSampler(self, 0)]


class LateSampler(ScriptedSampler):
    """Answers later."""

    def ask(self, asks):
        found = [Future() for _ in asks]
        for future, known in zip(found, super().ask(asks), strict=True):
            threading.Timer(self.agent.seconds, future.set_result, [known.result()]).start()
        return found


def tasks_of(folder, *records):
    path = folder / "tasks.jsonl"
    path.write_text("".join(f"{json.dumps(each)}\n" for each in records))
    return JsonlTasks(path, fields=())


def played(folder, *records, agent=None, voice=VOICE, judge="", command=COMMAND, **options):
    """The transcripts of each record's run, in the file's order, and their scenes."""
    family = tasks_of(folder, *records)
    world = ProgramWorld(JudgedQuestions(family, judge) if judge else family, command, **options)
    order = [family.record(family.sample(seed, 0)) for seed in range(len(records))]
    scenes = [world.begin(order.index(each), 0) for each in records]
    keys = jax.random.split(jax.random.key(0), 1)
    (lines,) = play_scenes(agent or Letters(), [scenes], voice, keys)
    world.close()
    return [next(line for line in lines if line.scene == n) for n in range(len(scenes))], scenes


def texts(line):
    """What was said and heard in each context."""
    return [TOKENIZER.decode(line.ids[part]) for part in line.contexts]


def own_texts(line):
    """What was said in each context."""
    pairs = [[*zip(line.ids[part], line.own[part], strict=True)] for part in line.contexts]
    return [TOKENIZER.decode([token for token, own in each if own]) for each in pairs]


def last_lines(scenes):
    return [json.loads(each.left.last_line) for each in scenes]


def is_running(scene):
    """Whether a process of the scene still runs, by its folder."""
    folder = Path("/proc")
    if not folder.is_dir():
        return False
    name = scene.left.folder
    return any(_folder_of(each) == name for each in folder.glob("[0-9]*"))


def _folder_of(process):
    try:
        return os.readlink(process / "cwd").removesuffix(" (deleted)")
    except OSError:
        return ""
