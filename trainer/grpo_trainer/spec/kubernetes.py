"""Values with a grammar of Kubernetes' own: names of objects, label keys, quantities.

The API server refuses a pod, a claim or a RayCluster with other values; here they are refused
before anything is created.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated

from pydantic import Field, StringConstraints

from .base import NAME_PATTERN

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_STANDARD_RESOURCES = r"cpu|memory|ephemeral-storage|hugepages-[1-9][0-9]*[KMGT]i"
_HOST_PART = "[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?"
_HOST = rf"({_HOST_PART}(\.{_HOST_PART})*|\[[0-9a-fA-F:]+\])(:[0-9]+)?"
_PATH_PART = r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*"

SUBDOMAIN = f"^{_SUBDOMAIN}$"
QUALIFIED_NAME = f"^({_SUBDOMAIN}/)?{_QUALIFIED}$"
LABEL_VALUE = f"^({_QUALIFIED})?$"
RESOURCE_NAME = f"^({_STANDARD_RESOURCES}|{_SUBDOMAIN}/{_QUALIFIED})$"
ACCELERATOR = f"^(cpu|{_SUBDOMAIN}/{_QUALIFIED})$"
# The grammar of https://github.com/distribution/reference.
IMAGE = (
    rf"^({_HOST}/)?{_PATH_PART}(/{_PATH_PART})*"
    r"(:[A-Za-z0-9_][-A-Za-z0-9_.]{0,127})?(@[a-z0-9]+([-+._][a-z0-9]+)*:[0-9a-fA-F]{32,})?$"
)
QUANTITY = r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][-+]?[0-9]+)?$"
INTEGER = "^[0-9]+$"
KEY = "^[-._a-zA-Z0-9]+$"
VARIABLE = "^[A-Za-z_][A-Za-z0-9_]*$"
PART_NAME = "^[A-Za-z][-A-Za-z0-9_]*$"
# As that of a batch Job.
CONTROLLER = rf"^{_SUBDOMAIN}/[-A-Za-z0-9._~/]+$"
VARIABLE_PREFIX = "^([-._a-zA-Z][-._a-zA-Z0-9]*)?$"
# Empty values have a meaning: no storage class, every taint.
CLASS_OR_EMPTY = f"^({_SUBDOMAIN})?$"
TAINT_OR_EMPTY = rf"^(({_SUBDOMAIN}/)?{_QUALIFIED})?$"

URL = r"^https?://[^/\s?#]+(/[^\s?#]*)?$"
MODULE_CLASS = r"^[^:\s]+:[A-Za-z_][A-Za-z0-9_]*$"

MEANINGS: Mapping[str, str] = {
    NAME_PATTERN: "lower-case letters, digits and '-', beginning with a letter and ending with a "
    "letter or digit",
    SUBDOMAIN: "a name of lower-case letters, digits, '-' and '.' that begins and ends with a "
    "letter or digit",
    QUALIFIED_NAME: "a label key: up to 63 letters, digits, '-', '_' and '.', with an optional "
    "prefix such as example.com/",
    CLASS_OR_EMPTY: "a name of lower-case letters, digits, '-' and '.', or empty",
    TAINT_OR_EMPTY: "a label key, or empty",
    URL: "an http or https URL",
    MODULE_CLASS: "FILE.py:CLASS or MODULE:CLASS",
    LABEL_VALUE: "a label value: up to 63 letters, digits, '-', '_' and '.'",
    RESOURCE_NAME: "cpu, memory, ephemeral-storage, hugepages-<size> or an extended resource such "
    "as nvidia.com/gpu",
    ACCELERATOR: "cpu or an extended resource such as nvidia.com/gpu",
    IMAGE: "an image such as registry.example.com/team/name:tag, its path in lower case",
    QUANTITY: "a quantity such as 500m, 2 or 32Gi",
    KEY: "letters, digits, '-', '_' and '.'",
    VARIABLE: "letters, digits and '_', not beginning with a digit",
    PART_NAME: "letters, digits, '-' and '_', beginning with a letter",
    CONTROLLER: "a path with a domain such as example.com/controller",
    VARIABLE_PREFIX: "letters, digits, '-', '_' and '.', not beginning with a digit",
}
"""What each pattern accepts, for messages."""

ObjectName = Annotated[str, StringConstraints(pattern=SUBDOMAIN, max_length=253)]
# Kueue's queue is a label value too.
QueueName = Annotated[str, StringConstraints(pattern=SUBDOMAIN, max_length=63)]
LabelKey = Annotated[str, StringConstraints(pattern=QUALIFIED_NAME, max_length=317)]
ClassName = Annotated[str, StringConstraints(pattern=CLASS_OR_EMPTY, max_length=253)]
TaintKey = Annotated[str, StringConstraints(pattern=TAINT_OR_EMPTY, max_length=317)]
LabelValue = Annotated[str, StringConstraints(pattern=LABEL_VALUE)]
ResourceName = Annotated[str, StringConstraints(pattern=RESOURCE_NAME, max_length=317)]
Accelerator = Annotated[str, StringConstraints(pattern=ACCELERATOR, max_length=317)]
Key = Annotated[str, StringConstraints(pattern=KEY, max_length=253)]
Image = Annotated[str, StringConstraints(pattern=IMAGE, max_length=512)]
VariableName = Annotated[str, StringConstraints(pattern=VARIABLE)]
VariablePrefix = Annotated[str, StringConstraints(pattern=VARIABLE_PREFIX)]
ControllerName = Annotated[str, StringConstraints(pattern=CONTROLLER, max_length=63)]
Quantity = Annotated[str, Field(pattern=QUANTITY, max_length=64)]

_SUFFIXES = {
    **{suffix: Decimal(10) ** (3 * i) for i, suffix in enumerate("num", start=-3)},
    **{suffix: Decimal(10) ** (3 * i) for i, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Decimal(1024) ** i for i, suffix in enumerate("KMGTPE", start=1)},
}


def quantity_value(quantity: str | int) -> Decimal:
    """The number of a valid quantity: 32Gi is 34359738368."""
    text = str(quantity)
    suffix = next((s for s in sorted(_SUFFIXES, key=len, reverse=True) if text.endswith(s)), "")
    return Decimal(text.removesuffix(suffix)) * _SUFFIXES.get(suffix, Decimal(1))


def is_extended(resource: str) -> bool:
    """Whether a resource is an extended one, which is counted in whole units."""
    return "/" in resource


def is_huge_pages(resource: str) -> bool:
    """Whether a resource is memory in huge pages of one size."""
    return resource.startswith("hugepages-")
