"""Complete the settings of a language run: absolute paths, the tokenizer, the context length."""

from __future__ import annotations

import dataclasses
import json
import os

from sterling.language.agent_programs.program_command import absolute_command, check_program
from sterling.language.worlds.judged_questions import probe_judge
from sterling.system.terminal_messages import print_notice
from sterling.training.config.settings import Settings
from sterling.training.language import context_length, judge_models
from sterling.training.language.base_model import language_settings, starting_model
from sterling.training.language.first_lines import first_lines
from sterling.training.language.model_names import NEW_MODELS
from sterling.training.language.text_files import texts_context
from sterling.training.language.text_world import asked_levels, make_voice, program_of, text_world
from sterling.training.language.tokenizer_alphabet import choose_alphabet

PATHS = ("model", "teacher", "texts", "dump", "replay", "pool")  # settings that name files


def resolve_language_settings(settings: Settings) -> Settings:
    """Return a language run's settings with absolute paths, a tokenizer that has all characters of
    its texts, and the context length; print a new run's first lines. Settings of a resumed run,
    which has these, stay as they are.
    """
    settings, notice = choose_alphabet(with_absolute_paths(settings))
    if not settings.context:
        for line in (*first_lines(settings), *filter(None, [notice])):
            print_notice(line)
    complete = with_context_length(settings)
    if not settings.context:
        judge_models.teacher_of(complete)  # raises before training begins
    return warn_of_long_context(complete)


def with_absolute_paths(settings: Settings) -> Settings:
    """Return the settings with absolute paths, valid from every directory."""
    speech = settings.speech
    if speech is None:
        return settings
    paths = {name: getattr(speech, name) for name in PATHS}
    absolute = {
        name: os.path.abspath(at) for name, at in paths.items() if at and at not in NEW_MODELS
    }
    if speech.agent and not settings.context:  # a resumed run's command is complete
        absolute["agent"] = absolute_command(speech.agent)
        check_program(absolute["agent"])
    return dataclasses.replace(settings, speech=dataclasses.replace(speech, **absolute))


def with_context_length(settings: Settings) -> Settings:
    """Return the settings with the context length that the world's scenes need."""
    if settings.context:
        return settings
    if not settings.environment:
        return dataclasses.replace(settings, context=texts_context(settings))
    place, speech = text_world(settings), language_settings(settings)
    context_length.check_scenes_begin(place, asked_levels(settings, place), speech.scene_seconds)
    if (probe := program_of(settings, place)) is not None:
        print_notice(probe.line)
    verdict = probe.verdict if probe else probe_judge(place, asked_levels(settings, place)[0])
    voice = make_voice(settings, place, starting_model(speech.model).tokenizer)
    if verdict is not None:
        voice.rule.check_names(verdict.rewards)
        voice.right_if.check_names(verdict.rewards)
    return dataclasses.replace(settings, context=voice.context)


def warn_of_long_context(settings: Settings) -> Settings:
    """Return the settings; print a notice if the context is longer than the model supports."""
    speech = settings.speech
    if speech is None or speech.model in NEW_MODELS:
        return settings
    models = starting_model(speech.model).models
    supported = json.loads(models.origin or "{}").get("max_position_embeddings")
    if isinstance(supported, int) and settings.context > supported:
        said = f"the context has {settings.context} tokens, and {speech.model} supports {supported}"
        print_notice(f"{said}; use --context {supported} to cut longer texts")
    return settings
