"""A window that shows an environment's pictures, and what its user presses (pygame)."""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np

from sterling.types import Mistake

PYGAME_REMEDY = 'Recording by hand needs pygame. Install it: pip install "sterling-rl[record]"'
LEAST_SIZE = 400  # pixels of the longer side: smaller pictures are enlarged by a whole number
HAT_NAMES = {(-1, 0): "left", (1, 0): "right", (0, 1): "up", (0, -1): "down"}
NO_WINDOW = ("dummy", "offscreen")  # drivers of SDL that show nothing


class Pressed:
    """What is pressed now, from pygame's events: keys and buttons by name, and a gamepad's axes."""

    def __init__(self) -> None:
        self._held: list[str] = []  # in the order in which they were pressed
        self._tapped: list[str] = []  # pressed since the last step
        self.axes: dict[int, float] = {}
        self.quit = self.discard = False

    def take_step(self) -> list[str]:
        """Return the keys that count for the next step: those held, and those tapped since the
        last one."""
        keys = [*self._held, *(key for key in self._tapped if key not in self._held)]
        self._tapped = []
        return keys

    @property
    def tapped(self) -> tuple[str, ...]:
        """Return the keys pressed since the last step, whether still held or not."""
        return tuple(self._tapped)

    def notice(self, pygame: Any, event: Any) -> None:
        """Take in one event."""
        if event.type == pygame.QUIT:
            self.quit = True
        elif event.type in (pygame.KEYDOWN, pygame.KEYUP):
            self._press(pygame.key.name(event.key), event.type == pygame.KEYDOWN)
        elif event.type in (pygame.JOYBUTTONDOWN, pygame.JOYBUTTONUP):
            self._press(f"b{event.button}", event.type == pygame.JOYBUTTONDOWN)
        elif event.type == pygame.JOYHATMOTION:
            for direction, name in HAT_NAMES.items():
                towards = any(x == y != 0 for x, y in zip(direction, event.value, strict=True))
                if towards != (name in self._held):
                    self._press(name, towards)
        elif event.type == pygame.JOYAXISMOTION:
            self.axes[int(event.axis)] = float(event.value)

    def _press(self, name: str, down: bool) -> None:
        self.quit |= down and name == "escape"
        self.discard |= down and name == "backspace"
        if down:
            self._held = [key for key in self._held if key != name] + [name]
            self._tapped.append(name)
        elif name in self._held:
            self._held.remove(name)


class PlayWindow:
    """A window for one environment. Raises Mistake if pygame is missing or there is no display, or
    if a gamepad is asked for and none is connected."""

    def __init__(self, title: str, *, gamepad: bool = False):
        self.pygame = import_pygame()
        check_display(self.pygame)
        self.pressed, self._title = Pressed(), title
        self._screen: Any = None
        self._clock = self.pygame.time.Clock()
        self._joysticks = self._open_gamepads() if gamepad else []

    def show(self, picture: Any, words: str) -> None:
        """Show a picture ``(height, width, 3)`` and a line of text in the window's title."""
        pixels = np.asarray(picture)
        if pixels.ndim != 3 or pixels.shape[2] < 3:
            raise Mistake(
                f"the environment renders pictures of shape {pixels.shape}; a window needs (height,"
                " width, 3). Use render_mode rgb_array."
            )
        height, width = pixels.shape[:2]
        times = max(-(-LEAST_SIZE // max(height, width)), 1)
        size = (width * times, height * times)
        if self._screen is None or self._screen.get_size() != size:
            try:
                self._screen = self.pygame.display.set_mode(size)
            except self.pygame.error as error:
                raise Mistake(f"no window can be opened: {error}. {DISPLAY_REMEDY}") from error
        surface = self.pygame.surfarray.make_surface(pixels[..., :3].swapaxes(0, 1))
        self._screen.blit(self.pygame.transform.scale(surface, size), (0, 0))
        self.pygame.display.set_caption(f"{self._title}: {words}")
        self.pygame.display.flip()

    def wait(self, fps: float) -> None:
        """Wait until the next picture is due, and take in what was pressed."""
        self._clock.tick(fps)
        for event in self.pygame.event.get():
            self.pressed.notice(self.pygame, event)

    def key_name(self, code: int) -> str:
        """Return the name of a key by its code."""
        return str(self.pygame.key.name(code))

    def close(self) -> None:
        """Close the window."""
        self.pygame.quit()

    def _open_gamepads(self) -> list[Any]:
        self.pygame.joystick.init()
        count = self.pygame.joystick.get_count()
        if not count:
            self.pygame.quit()
            raise Mistake("no gamepad is connected. Connect one, or use --by keyboard.")
        return [self.pygame.joystick.Joystick(at) for at in range(count)]


DISPLAY_REMEDY = "Run it on a machine with a screen (over ssh: ssh -X)."


def import_pygame() -> Any:
    """Return pygame; raise Mistake if it is not installed."""
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    try:
        import pygame
    except ImportError as error:
        raise Mistake(PYGAME_REMEDY) from error
    return pygame


def check_display(pygame: Any) -> None:
    """Raise Mistake if no window can be seen, unless SDL_VIDEODRIVER asks for one without."""
    asked = os.environ.get("SDL_VIDEODRIVER", "")
    shown = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if not asked and not shown and sys.platform.startswith("linux"):
        raise Mistake(f"there is no display for a window. {DISPLAY_REMEDY}")
    try:
        pygame.display.init()  # not all of pygame: its sound complains where there is none
    except pygame.error as error:
        raise Mistake(f"no window can be opened: {error}. {DISPLAY_REMEDY}") from error
    if not asked and pygame.display.get_driver() in NO_WINDOW:
        raise Mistake(f"there is no display for a window. {DISPLAY_REMEDY}")
