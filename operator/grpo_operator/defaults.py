"""The chart's defaults for the pods of all jobs, from the operator's environment."""

from typing import Any

from pydantic import Field, ValidationError

from grpo_trainer.spec.base import Record
from grpo_trainer.spec.cluster import EnvVar, NamedRef, ResourcesSpec, TolerationSpec

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
    runtime_class_name: str | None = None
    """Overridden by a podTemplate."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels of the RayCluster and of all pods."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations of the RayCluster and of all pods."""
    head: ResourcesSpec = ResourcesSpec(requests={"cpu": "500m", "memory": "1Gi"})
    """Resources of a head whose spec has none; no memory limit, since the driver's use depends on
    the model."""

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
