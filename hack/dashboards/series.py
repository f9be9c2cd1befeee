"""How the series of one job, the one chosen at the top, are asked for."""

JOB_LABELS = 'namespace="$namespace", grpojob="$grpojob"'


def newest(metric: str, by: str = "") -> str:
    """A gauge of the job. A new head is a new series, which `max` makes one with the old."""
    return f"max{f' by ({by}) ' if by else ''}({metric}{{{JOB_LABELS}}})"


def rate(metric: str, by: str = "") -> str:
    return f"sum{f' by ({by}) ' if by else ''}(rate({metric}{{{JOB_LABELS}}}[$window]))"


def total(metric: str, by: str) -> str:
    """A counter that a resumed run goes on with, so it counts since the job's start."""
    return f"max by ({by}) ({metric}{{{JOB_LABELS}}})"
