"""The images of a run: recorded from its pods, by digest, and the same for its later pods.

Aspects: an upgrade of the chart changes no run; an edit of the suspended job does; only a digest of
the repository that is requested is used.
"""

from dataclasses import replace

import pytest

from grpo_operator.controller.decide import decide
from grpo_operator.model.images import pinned, recorded_images
from grpo_operator.model.observed import Role
from grpo_operator.render import ray_cluster
from grpo_operator.settings import Images, Settings
from grpo_trainer.spec import ImageStatus
from support.observations import NOW, job, observed, pods, ray_job, running

DIGEST = f"sha256:{'a' * 64}"
OTHER = f"sha256:{'b' * 64}"
BEFORE, AFTER = (Settings(images=Images(f"hub.io/trainer:{n}", f"hub.io/vllm:{n}")) for n in "12")
PATCHED = {"spec": {"containers": [{"name": "ray", "image": "patched:1"}]}}


def run(image="hub.io/trainer:1", image_id=f"hub.io/trainer@{DIGEST}", **fields):
    """A job, its status after a reconciliation of pods that run an image."""
    running_pods = tuple(replace(p, image=image, image_id=image_id) for p in pods())
    subject = job(running(), **fields)
    decision = decide(observed(subject, pods=running_pods, ray_jobs=(ray_job(),)), NOW)
    return job(decision.status, **fields)


def images_of(subject, settings):
    """The images of head, producers and consumers in a new RayCluster."""
    spec = ray_cluster(subject, settings)["spec"]
    templates = [spec["headGroupSpec"]["template"]]
    templates += [group["template"] for group in spec["workerGroupSpecs"]]
    return [template["spec"]["containers"][0]["image"] for template in templates]


def test_the_images_of_a_run_are_recorded_from_its_pods():
    expected = {
        ImageStatus(role=role, image="hub.io/trainer:1", digest=DIGEST) for role in map(str, Role)
    }
    assert set(run().status.images) == expected


def test_an_upgrade_of_the_chart_does_not_change_the_images_of_a_run():
    assert images_of(run(), AFTER) == [f"hub.io/trainer@{DIGEST}"] * 3
    assert images_of(job(), AFTER) == ["hub.io/trainer:2"] * 3


def test_without_a_digest_the_tag_of_the_run_is_kept():
    assert images_of(run(image_id=""), AFTER) == ["hub.io/trainer:1"] * 3


def test_pods_that_are_pinned_by_digest_change_no_record():
    before = run()
    pinned_pods = tuple(replace(p, image=f"hub.io/trainer@{DIGEST}") for p in pods())
    assert recorded_images(observed(before, pods=pinned_pods)) == before.status.images


def test_an_image_of_the_spec_replaces_the_recorded_one():
    edited = replace(run(), spec=job(consumers={"image": "mine:2"}).spec)
    assert images_of(edited, AFTER)[2] == "mine:2"
    after = tuple(replace(p, image="mine:2", image_id=None) for p in pods())
    recorded = {i.role: i for i in recorded_images(observed(edited, pods=after))}
    assert recorded["consumers"] == ImageStatus(role="consumers", image="mine:2", from_spec=True)


def test_without_its_image_in_the_spec_a_run_uses_the_present_default():
    edited = replace(run(image="mine:2", head={"image": "mine:2"}), spec=job().spec)
    assert images_of(edited, AFTER)[0] == "hub.io/trainer:2"


def test_an_image_of_a_pod_template_is_pinned_too():
    fields = {"consumers": {"podTemplate": PATCHED}}
    subject = run(image="patched:1", image_id=f"docker.io/library/patched@{DIGEST}", **fields)
    assert images_of(subject, BEFORE)[2] == f"patched@{DIGEST}"


@pytest.mark.parametrize(
    ("image", "image_id", "reference"),
    [
        ("trainer:1", f"docker.io/library/trainer@{DIGEST}", f"trainer@{DIGEST}"),
        ("me/trainer:1", f"docker.io/me/trainer@{DIGEST}", f"me/trainer@{DIGEST}"),
        ("me/trainer", f"docker-pullable://me/trainer@{DIGEST}", f"me/trainer@{DIGEST}"),
        ("hub:5000/a:1", f"hub:5000/a@{DIGEST}", f"hub:5000/a@{DIGEST}"),
        (f"hub.io/a:1@{DIGEST}", f"hub.io/a@{DIGEST}", f"hub.io/a@{DIGEST}"),
        ("hub.io/a:1", f"mirror.io/a@{OTHER}", "hub.io/a:1"),
        ("hub.io/a:1", OTHER, "hub.io/a:1"),
        ("hub.io/a:1", "", "hub.io/a:1"),
    ],
    ids=["short", "user", "docker", "port", "digest", "other repository", "local image", "none"],
)
def test_an_image_is_pinned_by_a_digest_of_its_own_repository_only(image, image_id, reference):
    assert {pinned(found) for found in run(image, image_id).status.images} == {reference}
