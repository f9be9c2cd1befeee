"""The one contract of operator, command line and trainer: pydantic and the standard library."""

from .base import API_GROUP, API_VERSION, KIND, MAX_NAME_LENGTH
from .cluster import CPU, Backend, WeightTransport, WeightUpdate
from .derived import ResolvedAlgorithm, resolve_algorithm
from .faults import Fault
from .job import GRPOJob, GRPOJobSpec, Metadata
from .mutability import MUTABLE_FIELDS
from .parsing import InvalidManifestError, parse_manifest
from .rules import RULES, Rule
from .status import (
    CheckpointStatus,
    Condition,
    ConditionStatus,
    ConditionType,
    ExitCode,
    GRPOJobStatus,
    MetricsStatus,
    Phase,
    Progress,
    ProgressStatus,
    RunState,
    WorkersStatus,
)
from .training import AlgorithmName, Dtype, LossAggregation, RewardType

__all__ = [
    "API_GROUP",
    "API_VERSION",
    "CPU",
    "KIND",
    "MAX_NAME_LENGTH",
    "MUTABLE_FIELDS",
    "RULES",
    "AlgorithmName",
    "Backend",
    "CheckpointStatus",
    "Condition",
    "ConditionStatus",
    "ConditionType",
    "Dtype",
    "ExitCode",
    "Fault",
    "GRPOJob",
    "GRPOJobSpec",
    "GRPOJobStatus",
    "InvalidManifestError",
    "LossAggregation",
    "Metadata",
    "MetricsStatus",
    "Phase",
    "Progress",
    "ProgressStatus",
    "ResolvedAlgorithm",
    "RewardType",
    "Rule",
    "RunState",
    "WeightTransport",
    "WeightUpdate",
    "WorkersStatus",
    "parse_manifest",
    "resolve_algorithm",
]
