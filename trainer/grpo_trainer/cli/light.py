"""transformers without torch, for commands that read configurations and tokenizers only."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_torch() -> Iterator[None]:
    """transformers reads configurations and tokenizers without torch, in a third of the time.

    It reads the variables once, when it is imported; a reward's processes must not inherit them.
    The Hub's own lines about each retry add nothing to the fault.
    """
    light = {"USE_TORCH": "0", "TRANSFORMERS_VERBOSITY": "error", "HF_HUB_VERBOSITY": "error"}
    before = {name: os.environ.get(name) for name in light}
    os.environ |= light
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
