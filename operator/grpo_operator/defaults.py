"""The chart's defaults for the pods of all jobs, from the operator's environment."""

from typing import Any, Literal

from pydantic import Field, ValidationError

from grpo_trainer.spec.base import Record
from grpo_trainer.spec.cluster import EnvVar, NamedRef, ResourcesSpec, TolerationSpec
from grpo_trainer.spec.kubernetes import LabelKey, LabelValue, ObjectName, QueueName

from .model.observed import Role

Object = dict[str, Any]


class JobDefaults(Record):
    """What each pod of a job gets unless the job's spec says otherwise."""

    env: tuple[EnvVar, ...] = ()
    """Variables as containers have them, such as HF_ENDPOINT or proxies. Those of a job's spec.env
    override them by name."""
    image_pull_secrets: tuple[NamedRef, ...] = ()
    """Added to those of the spec."""
    tolerations: tuple[TolerationSpec, ...] = ()
    """Added to those of the spec."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    """Overridden by a podTemplate, as the next four."""
    runtime_class_name: ObjectName | None = None
    scheduler_name: ObjectName | None = None
    priority_class_name: ObjectName | None = None
    """Overridden by the spec's."""
    pod_security_context: dict[str, Any] | None = None
    """Replaces the one that runs all pods with user and group 1000."""
    queue_name: QueueName | None = None
    """LocalQueue of Kueue of jobs that name none."""
    labels: dict[LabelKey, LabelValue] = Field(default_factory=dict)
    """Labels of the RayCluster and of all pods; those of the spec override them by key."""
    annotations: dict[LabelKey, str] = Field(default_factory=dict)
    """Annotations of the RayCluster and of all pods; those of the spec override them by key."""
    allowed_keys: tuple[str, ...] = ()
    """Keys of labels and annotations that jobs may set, with `*` for any characters at the end; all
    that the API accepts when empty."""
    head: ResourcesSpec = ResourcesSpec(requests={"cpu": "500m", "memory": "1Gi"})
    """Resources of a head whose spec has none; no memory limit, since the driver's use depends on
    the model."""

    def allows(self, key: str) -> bool:
        """Whether a job may set a label or annotation."""
        if not self.allowed_keys:
            return True
        exact = key in self.allowed_keys
        begins = tuple(allowed[:-1] for allowed in self.allowed_keys if allowed.endswith("*"))
        return exact or key.startswith(begins)

    def head_resources(self, role: Role) -> Object:
        """Default resources of a pod of this role."""
        amounts = self.head.plain() if role is Role.HEAD else {}
        return {kind: given for kind, given in amounts.items() if given}

    @classmethod
    def parse(cls, name: str, text: str) -> "JobDefaults":
        """The value of the variable `name`. Raises ValueError that names it and its value."""
        if not text:
            return cls()
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            fault = error.errors()[0]
            place = ".".join(str(part) for part in fault["loc"])
            raise ValueError(f"{name}: Invalid value: {text!r}: {place}: {fault['msg']}") from error
