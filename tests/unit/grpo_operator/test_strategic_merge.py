"""Patches over pod templates. Expected results are those of `kubectl patch --type=strategic`.

Aspects: maps, nulls, lists by key, plain lists, directives, inputs left alone, bad items.
"""

import copy

import pytest

from grpo_operator.render.merge import strategic_merge

BASE = {
    "metadata": {"labels": {"a": "1"}},
    "spec": {
        "containers": [
            {"name": "ray", "image": "i", "env": [{"name": "A", "value": "1"}], "args": ["x"]}
        ],
        "tolerations": [{"key": "gpu"}],
        "nodeSelector": {"zone": "a"},
    },
}


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ({}, BASE["spec"]),
        ({"hostNetwork": True}, {**BASE["spec"], "hostNetwork": True}),
        (
            {"nodeSelector": {"pool": "b"}},
            {**BASE["spec"], "nodeSelector": {"zone": "a", "pool": "b"}},
        ),
        ({"nodeSelector": None}, {k: v for k, v in BASE["spec"].items() if k != "nodeSelector"}),
        (
            {"nodeSelector": {"$patch": "replace", "x": "y"}},
            {**BASE["spec"], "nodeSelector": {"x": "y"}},
        ),
        ({"tolerations": [{"key": "spot"}]}, {**BASE["spec"], "tolerations": [{"key": "spot"}]}),
    ],
    ids=["nothing", "new", "map", "null", "replaced map", "list"],
)
def test_maps_merge_and_plain_lists_replace(patch, expected):
    assert strategic_merge(BASE, {"spec": patch})["spec"] == expected


def containers(*patch):
    return strategic_merge(BASE, {"spec": {"containers": list(patch)}})["spec"]["containers"]


def test_containers_merge_by_name_and_environment_in_them():
    change = {"name": "ray", "env": [{"name": "B", "value": "2"}, {"name": "A", "value": "3"}]}
    (container,) = containers(change)
    assert container["env"] == [{"name": "A", "value": "3"}, {"name": "B", "value": "2"}]
    assert container["image"] == "i"


def test_a_new_container_stands_behind_rays_own():
    assert [c["name"] for c in containers({"name": "aa", "image": "s"})] == ["ray", "aa"]


def test_an_item_can_be_deleted_or_replaced():
    assert containers({"name": "ray", "$patch": "delete"}) == []
    assert containers({"name": "ray", "$patch": "replace", "image": "j"}) == [
        {"name": "ray", "image": "j"}
    ]


def test_a_whole_list_can_be_replaced():
    assert containers({"name": "b"}, {"$patch": "replace"}) == [{"name": "b"}]


def test_neither_input_is_changed():
    patch = {"spec": {"containers": [{"name": "ray", "env": [{"name": "B"}]}]}}
    before = copy.deepcopy((BASE, patch))
    strategic_merge(BASE, patch)
    assert (BASE, patch) == before


def test_an_item_without_its_key_is_refused():
    with pytest.raises(ValueError, match="containers needs `name`"):
        containers({"image": "x"})
