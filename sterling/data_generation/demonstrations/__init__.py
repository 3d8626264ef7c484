"""Record episodes that a human plays, with the keyboard or a gamepad."""
