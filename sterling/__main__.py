"""Entry point of ``python -m sterling`` and of the command ``sterling``."""

import sys


def main() -> int:
    """Run the command line; Ctrl-C during its imports ends it without a traceback."""
    try:
        from sterling.cli import main as carried_out

        return carried_out()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
