"""Rules across fields of pods: what Kubernetes requires of resources, tolerations, variables."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from .cluster import EnvFromSource, EnvVar, PodPoolSpec, ResourcesSpec, TolerationSpec
from .kubernetes import INTEGER, is_extended, is_huge_pages, quantity_value
from .rule import Rule

if TYPE_CHECKING:
    from .job import GRPOJobSpec

_POOLS = ("head", "producers", "consumers", "environment.pods")


def _pool(spec: "GRPOJobSpec", pool: str) -> PodPoolSpec | None:
    """The pool at a path; None for one that the spec does not have."""
    value: Any = spec
    for part in pool.split("."):
        value = getattr(value, part, None)
    found: PodPoolSpec | None = value
    return found


def _guarded(pool: str, cel: str) -> str:
    """The expression, for a pool that may be absent."""
    if pool != "environment.pods":
        return cel
    return f"!has(self.environment) || !has(self.environment.pods) || ({cel})"


def _within_limits(resources: ResourcesSpec) -> bool:
    limits = resources.limits
    return all(
        quantity_value(amount) <= quantity_value(limits[name])
        for name, amount in resources.requests.items()
        if name in limits
    )


def _whole_units(resources: ResourcesSpec) -> bool:
    return all(
        re.search(INTEGER, str(amount)) is not None
        for amounts in (resources.requests, resources.limits)
        for name, amount in amounts.items()
        if is_extended(name)
    )


def _reserved_limits(resources: ResourcesSpec) -> bool:
    limits = resources.limits
    return all(
        name in limits and quantity_value(limits[name]) == quantity_value(amount)
        for name, amount in resources.requests.items()
        if is_extended(name) or is_huge_pages(name)
    )


def _with_huge_pages(resources: ResourcesSpec) -> bool:
    names = {*resources.requests, *resources.limits}
    return not any(map(is_huge_pages, names)) or bool(names & {"cpu", "memory"})


def _resources(pool: str) -> Iterator[Rule]:
    here = f"self.{pool}.resources"
    requests, limits = f"{here}.requests", f"{here}.limits"

    def holds(check: Callable[[ResourcesSpec], bool]) -> Callable[["GRPOJobSpec"], bool]:
        def holds_for(spec: "GRPOJobSpec") -> bool:
            found = _pool(spec, pool)
            return found is None or check(found.resources)

        return holds_for

    yield Rule(
        field=f"{pool}.resources.requests",
        cel=_guarded(
            pool,
            f"!has({requests}) || !has({limits}) || {requests}.all(name, !(name in {limits}) || "
            f"!quantity(string({requests}[name])).isGreaterThan(quantity(string({limits}[name]))))",
        ),
        holds=holds(_within_limits),
        must="must be at most the limits",
        shown=False,
    )
    whole = "{0}.all(name, !name.contains('/') || string({0}[name]).matches('" + INTEGER + "'))"
    yield Rule(
        field=f"{pool}.resources",
        cel=_guarded(
            pool,
            f"(!has({requests}) || {whole.format(requests)}) && "
            f"(!has({limits}) || {whole.format(limits)})",
        ),
        holds=holds(_whole_units),
        must="must have whole numbers of extended resources",
        shown=False,
    )
    equal = f"quantity(string({limits}[name])).compareTo(quantity(string({requests}[name]))) == 0"
    reserved = "(name.contains('/') || name.startsWith('hugepages-'))"
    yield Rule(
        field=f"{pool}.resources.requests",
        cel=_guarded(
            pool,
            f"!has({requests}) || {requests}.all(name, !{reserved} || (has({limits}) && "
            f"name in {limits} && {equal}))",
        ),
        holds=holds(_reserved_limits),
        must="must equal the limits for extended resources and huge pages",
        shown=False,
    )
    some = "(has({0}) && {0}.exists(name, {1}))"
    huge, usual = "name.startsWith('hugepages-')", "name in ['cpu', 'memory']"
    yield Rule(
        field=f"{pool}.resources",
        cel=_guarded(
            pool,
            f"!({some.format(requests, huge)} || {some.format(limits, huge)}) || "
            f"{some.format(requests, usual)} || {some.format(limits, usual)}",
        ),
        holds=holds(_with_huge_pages),
        must="must have cpu or memory beside huge pages",
        shown=False,
    )


def _all_tolerations(
    pool: str, check: Callable[[TolerationSpec], bool]
) -> Callable[["GRPOJobSpec"], bool]:
    def holds(spec: "GRPOJobSpec") -> bool:
        found = _pool(spec, pool)
        return found is None or all(map(check, found.tolerations))

    return holds


def _tolerations(pool: str) -> Iterator[Rule]:
    each = f"!has(self.{pool}.tolerations) || self.{pool}.tolerations.all(t, {{}})"
    exists = "has(t.operator) && t.operator == 'Exists'"
    yield Rule(
        field=f"{pool}.tolerations",
        cel=_guarded(pool, each.format(f"(has(t.key) && t.key != '') || ({exists})")),
        holds=_all_tolerations(pool, lambda t: bool(t.key) or t.operator == "Exists"),
        must="must have operator Exists where key is absent",
        shown=False,
    )
    yield Rule(
        field=f"{pool}.tolerations",
        cel=_guarded(pool, each.format(f"!({exists}) || !has(t.value) || t.value == ''")),
        holds=_all_tolerations(pool, lambda t: t.operator != "Exists" or not t.value),
        must="must have no value with operator Exists",
        shown=False,
    )
    yield Rule(
        field=f"{pool}.tolerations",
        cel=_guarded(
            pool,
            each.format("!has(t.tolerationSeconds) || (has(t.effect) && t.effect == 'NoExecute')"),
        ),
        holds=_all_tolerations(
            pool, lambda t: t.toleration_seconds is None or t.effect == "NoExecute"
        ),
        must="must have effect NoExecute with tolerationSeconds",
        shown=False,
    )


def _one_value(variable: EnvVar) -> bool:
    source = variable.value_from
    one_source = source is None or (
        (source.secret_key_ref is None) != (source.config_map_key_ref is None)
    )
    return one_source and (variable.value is None or source is None)


def _one_source(source: EnvFromSource) -> bool:
    return (source.secret_ref is None) != (source.config_map_ref is None)


def _variables() -> Iterator[Rule]:
    yield Rule(
        field="env",
        cel="!has(self.env) || self.env.all(e, !has(e.valueFrom) || (!has(e.value) && "
        "has(e.valueFrom.secretKeyRef) != has(e.valueFrom.configMapKeyRef)))",
        holds=lambda spec: all(map(_one_value, spec.env)),
        must="must have either a value or one source in valueFrom for each variable",
        shown=False,
    )
    yield Rule(
        field="envFrom",
        cel="!has(self.envFrom) || self.envFrom.all(e, has(e.secretRef) != has(e.configMapRef))",
        holds=lambda spec: all(map(_one_source, spec.env_from)),
        must="must have one of secretRef and configMapRef in each item",
        shown=False,
    )


def _rules() -> Iterable[Rule]:
    for pool in _POOLS:
        yield from _resources(pool)
        yield from _tolerations(pool)
    yield from _variables()


POD_RULES: tuple[Rule, ...] = tuple(_rules())
