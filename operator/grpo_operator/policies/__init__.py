"""One policy a file: pure functions of what was observed and the time."""
