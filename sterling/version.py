"""Sterling's version, for the package, its builds and the facts that are stored with a run."""

__version__ = "0.1.0"
