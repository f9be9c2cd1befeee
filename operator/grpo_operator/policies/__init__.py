"""One module per policy: pure functions of the observation and the time."""
