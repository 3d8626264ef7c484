"""The solutions of a world, as transcripts to imitate."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from sterling.language.engine.ask import Said
from sterling.language.engine.transcript import Transcript
from sterling.language.scene import Scene, check_seat
from sterling.language.scene_dialogue import UNLIMITED_CONTEXT, ChatSettings, SceneBatch


def demonstrate(
    world: Any, scenes: Sequence[Scene | str], settings: ChatSettings
) -> list[Transcript]:
    """Return the transcripts of scenes in which the world's own ``solve`` speaks, without a limit
    on its answers; transcripts longer than the context are marked as cut."""
    batch = SceneBatch(scenes, dataclasses.replace(settings, context=UNLIMITED_CONTEXT))
    while waiting := batch.waiting():
        for transcript in waiting:
            check_seat(world, transcript.seat)
            ids = settings.tokenizer.encode_answer(world.solve(batch.scenes[transcript.scene]))
            batch.add_answer(transcript, Said(ids, [0.0] * len(ids), True))
    transcripts = batch.finish()
    for transcript in transcripts:
        transcript.cut = transcript.full = transcript.longest > settings.context
    return transcripts
