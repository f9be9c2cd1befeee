"""The environment that answers the model's turns; absent, a completion is a single turn."""

from typing import Annotated

from pydantic import Field

from .base import PositiveFloat, PositiveInt, Record
from .cluster import PodPoolSpec
from .kubernetes import MODULE_CLASS, URL


class EnvironmentPodsSpec(PodPoolSpec):
    """Pods of the environment in a cluster: without the volume, without a token."""

    replicas: PositiveInt = 1
    """Environment pods; an episode stays in one of them."""


class EnvironmentSpec(Record):
    url: Annotated[str, Field(pattern=URL)] | None = None
    """HTTP address of an environment that runs already. Set either this or `module`."""
    module: Annotated[str, Field(pattern=MODULE_CLASS)] | None = None
    """File or importable module and its class, `env.py:Calculator`, which the run starts; in a
    cluster it has to be in the image of the pods."""
    pods: EnvironmentPodsSpec | None = None
    """Pods that run `module` in a cluster; one with the defaults when absent."""
    max_turns: PositiveInt = 8
    """Turns of the model in one episode."""
    max_episode_tokens: PositiveInt = 8192
    """Tokens of an episode behind its opening, those of the environment included;
    sampling.maxNewTokens is the limit of one turn."""
    max_observation_tokens: PositiveInt = 1024
    """Tokens of the environment between two turns; longer texts are cut off at their end."""
    step_timeout_seconds: PositiveFloat = 60.0
    """Deadline of each call to the environment; an episode that exceeds it is not scored."""
    unavailable_timeout_seconds: PositiveFloat = 300.0
    """Seconds to wait for an environment that cannot be reached; its episodes are repeated from
    the start."""
    max_concurrent: PositiveInt = 256
    """Episodes of one producer at a time."""
