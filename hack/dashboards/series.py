"""Queries of the series of the selected job."""

JOB_LABELS = 'namespace="$namespace", grpojob="$grpojob"'


def newest(metric: str, by: str = "") -> str:
    """A gauge of the job; `max` joins the series of a recreated head pod with the old one."""
    return f"max{f' by ({by}) ' if by else ''}({metric}{{{JOB_LABELS}}})"


def rate(metric: str, by: str = "") -> str:
    return f"sum{f' by ({by}) ' if by else ''}(rate({metric}{{{JOB_LABELS}}}[$window]))"


def total(metric: str, by: str) -> str:
    """A counter since the start of the job: a resumed run continues it."""
    return f"max by ({by}) ({metric}{{{JOB_LABELS}}})"
