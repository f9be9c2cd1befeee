"""The API of operator, command line and trainer: pydantic and the standard library only."""

from .algorithm import (
    Advantage,
    AlgorithmName,
    CorrectionSpec,
    CorrectionWeights,
    ImportanceRatio,
    KlForm,
    LossAggregation,
    LossForm,
    OptimizerSpec,
    Schedule,
    WeightLevel,
)
from .base import API_GROUP, API_VERSION, KIND, MAX_NAME_LENGTH
from .cluster import CPU, Backend, ConsumerBackend, WeightTransport, WeightUpdate
from .derived import ResolvedAlgorithm, resolve_algorithm, resolved_spec
from .evaluation import EvaluationSet, evaluation_reward, evaluation_sets
from .faults import Fault
from .job import GRPOJob, GRPOJobSpec, Metadata
from .mutability import MUTABILITY, Mutable, mutability
from .parsing import InvalidManifestError, parse_manifest
from .plan import ResolvedPlan, planned_steps, resolve_plan
from .presets import PRESETS, Preset
from .reward import RewardPart, RewardSpec, RewardType, resolve_reward
from .rule import Rule
from .rules import RULES
from .status import (
    CheckpointStatus,
    CodeProtection,
    Condition,
    ConditionStatus,
    ConditionType,
    ExitCode,
    GRPOJobStatus,
    ImageStatus,
    MetricsStatus,
    Phase,
    Progress,
    ProgressStatus,
    RunState,
    WorkersStatus,
)
from .training import Dtype

__all__ = [
    "API_GROUP",
    "API_VERSION",
    "CPU",
    "KIND",
    "MAX_NAME_LENGTH",
    "MUTABILITY",
    "PRESETS",
    "RULES",
    "Advantage",
    "AlgorithmName",
    "Backend",
    "CheckpointStatus",
    "CodeProtection",
    "Condition",
    "ConditionStatus",
    "ConditionType",
    "ConsumerBackend",
    "CorrectionSpec",
    "CorrectionWeights",
    "Dtype",
    "EvaluationSet",
    "ExitCode",
    "Fault",
    "GRPOJob",
    "GRPOJobSpec",
    "GRPOJobStatus",
    "ImageStatus",
    "ImportanceRatio",
    "InvalidManifestError",
    "KlForm",
    "LossAggregation",
    "LossForm",
    "Metadata",
    "MetricsStatus",
    "Mutable",
    "OptimizerSpec",
    "Phase",
    "Preset",
    "Progress",
    "ProgressStatus",
    "ResolvedAlgorithm",
    "ResolvedPlan",
    "RewardPart",
    "RewardSpec",
    "RewardType",
    "Rule",
    "RunState",
    "Schedule",
    "WeightLevel",
    "WeightTransport",
    "WeightUpdate",
    "WorkersStatus",
    "evaluation_reward",
    "evaluation_sets",
    "mutability",
    "parse_manifest",
    "planned_steps",
    "resolve_algorithm",
    "resolve_plan",
    "resolve_reward",
    "resolved_spec",
]
