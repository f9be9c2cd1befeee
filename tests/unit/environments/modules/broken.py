"""An environment whose module lacks a library."""

import no_such_thing  # type: ignore[import-not-found]

Broken = no_such_thing.Environment
