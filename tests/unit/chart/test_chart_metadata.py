"""The metadata of Chart.yaml for Helm and Artifact Hub.

Aspects: the maintainers; the kinds of changes; the example of the CRD.
"""

import yaml

from grpo_trainer.cli.manifests import Document
from support.helm_chart import CHART

METADATA = yaml.safe_load((CHART / "Chart.yaml").read_text())
ANNOTATIONS = METADATA["annotations"]
# https://artifacthub.io/docs/topics/annotations/helm
CHANGES = {"added", "changed", "deprecated", "removed", "fixed", "security"}


def test_the_chart_names_its_maintainers():
    assert [maintainer["name"] for maintainer in METADATA["maintainers"]]


def test_an_annotation_is_text():
    assert {type(value) for value in ANNOTATIONS.values()} == {str}


def test_every_change_has_a_kind_and_a_description():
    changes = yaml.safe_load(ANNOTATIONS["artifacthub.io/changes"])
    assert {change["kind"] for change in changes} <= CHANGES
    assert all(change["description"] for change in changes)


def test_the_example_is_a_valid_job_of_the_definition_that_the_chart_installs():
    definition = yaml.safe_load((CHART / "files" / "grpojobs.yaml").read_text())
    (listed,) = yaml.safe_load(ANNOTATIONS["artifacthub.io/crds"])
    (example,) = yaml.safe_load(ANNOTATIONS["artifacthub.io/crdsExamples"])
    assert listed["name"] == definition["metadata"]["name"]
    assert listed["kind"] == example["kind"] == definition["spec"]["names"]["kind"]
    Document("Chart.yaml", example).parse()
