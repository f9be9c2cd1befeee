"""Paths of built-in models and data sets."""

SCHEME = "builtin://"


def is_builtin(path: str) -> bool:
    """Whether a model or data set path names a built-in one."""
    return path.startswith(SCHEME)
