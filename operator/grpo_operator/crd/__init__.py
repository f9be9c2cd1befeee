"""The CustomResourceDefinition, generated from the records of `grpo_trainer.spec`."""

from .manifest import NAME, PLURAL, VERSION, crd, render

__all__ = ["NAME", "PLURAL", "VERSION", "crd", "render"]
