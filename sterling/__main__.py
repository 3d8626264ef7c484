"""``python -m sterling``, and what the command ``sterling`` begins with."""

import sys


def main() -> int:
    """The command line; also who interrupts its own imports is answered without a traceback."""
    try:
        from sterling.cli import main as carried_out

        return carried_out()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
