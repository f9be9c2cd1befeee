"""The examples: manifests for the trainer and for Kubernetes fit together, the files that they name
are there, and the rewards pay as they say."""

import json
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from grpo_trainer.data import load_rows
from grpo_trainer.messages import Row, Score
from grpo_trainer.rewards import check_rows, make_reward, row_needs
from grpo_trainer.spec import KIND, GRPOJob, parse_manifest

ROOT = Path(__file__).parents[3]
FILES = sorted((ROOT / "examples").rglob("*.yaml"))
DOCUMENTS = [document for path in FILES for document in yaml.safe_load_all(path.read_text())]
JOBS = [parse_manifest(document) for document in DOCUMENTS if document["kind"] == KIND]
OF_KUBERNETES = [document for document in DOCUMENTS if document["apiVersion"] == "v1"]


def job(name: str) -> GRPOJob:
    return next(job for job in JOBS if job.metadata.name == name)


def one(kind: str) -> dict:
    (found,) = (document for document in DOCUMENTS if document["kind"] == kind)
    return found


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples' paths are seen from the root of the checkout."""
    monkeypatch.chdir(ROOT)


def test_the_names_of_jobs_differ():
    names = [job.metadata.name for job in JOBS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("document", OF_KUBERNETES, ids=lambda it: it["kind"])
def test_an_object_of_kubernetes_fits_its_schema(document):
    kubernetes_validate.validate(document, "1.34", strict=True)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_in_examples_that_is_named_is_there(path):
    words = path.read_text().replace("`", " ").split()
    named = [word for word in words if word.startswith(("examples/", "cluster/"))]
    places = (ROOT, ROOT / "examples")
    files = [word.partition(":")[0] for word in named]
    assert [f for f in files if not any((place / f).exists() for place in places)] == []


def test_jobs_that_share_a_claim_name_the_one_of_the_example():
    claims = {
        j.spec.storage.claim_name for j in JOBS if j.spec.storage and j.spec.storage.claim_name
    }
    assert claims == {one("PersistentVolumeClaim")["metadata"]["name"]}


def test_the_shared_claim_can_be_mounted_on_many_nodes():
    assert one("PersistentVolumeClaim")["spec"]["accessModes"] == ["ReadWriteMany"]


def test_the_queued_job_names_the_queue_of_the_example():
    queue, cluster_queue = one("LocalQueue"), one("ClusterQueue")
    assert job("queued").spec.queue_name == queue["metadata"]["name"]
    assert queue["spec"]["clusterQueue"] == cluster_queue["metadata"]["name"]


def test_the_queue_has_quota_for_all_that_the_queued_job_asks_for():
    (group,) = one("ClusterQueue")["spec"]["resourceGroups"]
    (flavor,) = group["flavors"]
    assert flavor["name"] == one("ResourceFlavor")["metadata"]["name"]
    assert [quota["name"] for quota in flavor["resources"]] == group["coveredResources"]
    spec = job("queued").spec
    for pool in (spec.head, spec.producers, spec.consumers):
        assert pool.resources.requests.keys() == {"cpu", "memory"}
        assert pool.resources.requests.keys() <= set(group["coveredResources"])


def test_the_training_pods_of_several_nodes_keep_apart_from_their_own_kind():
    spec = job("dapo-14b").spec
    terms = spec.consumers.pod_template["spec"]["affinity"]["podAntiAffinity"]
    (term,) = terms["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["labelSelector"]["matchLabels"] == {
        "grpo-operator.io/job": "dapo-14b",
        "grpo-operator.io/role": "consumers",
    }


@pytest.mark.parametrize(
    ("completion", "score"),
    [
        ("\\boxed{43}", Score(2.0, 1.0, 1.0)),
        ("12+31 is \\boxed{43}\n", Score(2.0, 1.0, 1.0)),
        ("\\boxed{53}", Score(0.5, 1.0, 0.0)),
        ("\\boxed{3}", Score(0.5, 1.0, 0.0)),
        ("\\boxed{143}", Score(2 / 3, 1.0, 0.0)),
        ("43", Score(0.0, 0.0, 0.0)),
        ("\\boxed{43} or \\boxed{44} or so", Score(0.0, 0.0, 0.0)),
        ("", Score(0.0, 0.0, 0.0)),
    ],
)
def test_the_custom_reward_pays_for_every_right_digit(completion, score):
    reward = make_reward(job("custom-reward").spec.reward)
    assert reward(completion, Row("row 1", (), answer="43")) == score


SOLUTIONS = (
    "print(sum(map(int, input().split())))",
    "print(*reversed(input().split()))",
    "n = int(input())\nprint(max(int(input()) for _ in range(n)))",
    "def fibonacci(n):\n a, b = 0, 1\n for _ in range(n):\n  a, b = b, a + b\n return a",
    "def is_palindrome(text):\n t = [*filter(str.isalpha, text.lower())]\n return t == t[::-1]",
    "def merge(a, b):\n return sorted(a + b)",
)


@pytest.fixture
def code_rows() -> list[Row]:
    spec = job("code-reward").spec
    return list(load_rows(spec.dataset.path, spec.dataset, row_needs(spec.reward)))


def test_the_rows_of_the_code_example_are_fit_for_training(code_rows):
    spec = job("code-reward").spec
    check_rows(code_rows, spec.reward)
    assert len(code_rows) == len(SOLUTIONS)
    assert len(code_rows) >= spec.groups_per_step


@pytest.mark.parametrize("number", range(len(SOLUTIONS)))
def test_a_right_program_is_paid_and_a_wrong_one_is_not(code_rows, number):
    reward = make_reward(job("code-reward").spec.reward)
    row = code_rows[number]
    right = reward(f"So:\n```python\n{SOLUTIONS[number]}\n```", row)
    assert (right.accuracy, right.format_accuracy) == (1.0, 1.0)
    assert right.reward > 0
    wrong = reward("```python\nprint(0)\n```", row)
    assert (wrong.reward, wrong.accuracy) == (0.0, 0.0)


def test_the_data_of_the_code_example_are_one_object_a_line():
    lines = (ROOT / job("code-reward").spec.dataset.path).read_text().splitlines()
    assert all(json.loads(line).keys() == {"messages", "test_cases"} for line in lines)
