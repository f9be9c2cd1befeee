"""The base of all records of the API: camel case in YAML, unknown fields refused."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

API_GROUP = "grpo-operator.io"
API_VERSION = f"{API_GROUP}/v1alpha1"
KIND = "GRPOJob"

# A RayCluster's name has at most 53 characters, and ours is "<job>-<first 8 of the UID>".
MAX_NAME_LENGTH = 44
NAME_PATTERN = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"


class Record(BaseModel):
    """A frozen record of the API."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )

    def plain(self) -> dict[str, Any]:
        """As in a manifest: camel case, JSON's types, without fields that are not set."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


PositiveInt = Annotated[int, Field(ge=1)]
NonNegativeInt = Annotated[int, Field(ge=0)]
PositiveFloat = Annotated[float, Field(gt=0)]
NonNegativeFloat = Annotated[float, Field(ge=0)]
NonEmptyStr = Annotated[str, StringConstraints(min_length=1)]
