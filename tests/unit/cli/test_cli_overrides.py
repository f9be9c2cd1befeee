"""A manifest and flags together: the flag wins, the rest is the file's, faults name both."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_trainer.cli.flags import FLAGS
from grpo_trainer.cli.jobs import given_flags, job_of
from grpo_trainer.cli.main import build_parser
from grpo_trainer.cli.manifests import Document
from grpo_trainer.cli.overrides import put
from grpo_trainer.errors import InvalidInputError
from grpo_trainer.spec import API_VERSION, GRPOJob, parse_manifest


def document(**spec) -> Document:
    data = {"apiVersion": API_VERSION, "kind": "GRPOJob", "metadata": {"name": "a"}, "spec": spec}
    return Document("job.yaml", data)


def merged(base: Document, *arguments: str) -> GRPOJob:
    return job_of(base, given_flags(build_parser().parse_args(["run", "job.yaml", *arguments])))


def test_a_given_flag_wins_and_every_other_field_is_the_files():
    base = document(sampling={"numGenerations": 4, "temperature": 0.5}, seed=7)
    job = merged(base, "-g", "16")
    assert job.spec.sampling.num_generations == 16
    assert job.spec.sampling.temperature == 0.5
    assert (job.spec.seed, job.metadata.name) == (7, "a")


def test_a_flag_at_its_default_still_wins():
    assert merged(document(numEpisodes=5), "-e", "1").spec.num_episodes == 1


def test_a_section_that_the_file_leaves_out_is_made():
    assert merged(document(), "-lr", "0.1").spec.algorithm.learning_rate == 0.1


def test_the_number_of_trainers_is_of_all_pods():
    base = document(consumers={"replicas": 2, "processesPerReplica": 8, "zeroStage": 1})
    consumers = merged(base, "-t", "4").spec.consumers
    assert (consumers.replicas, consumers.processes_per_replica, consumers.zero_stage) == (1, 4, 1)


def test_a_flag_fixes_a_fault_of_the_file():
    base = document(sampling={"numGenerations": 1})
    assert merged(base, "-g", "2").spec.sampling.num_generations == 2


def test_merging_leaves_the_file_as_read():
    base = document(sampling={"numGenerations": 4})
    merged(base, "-g", "16")
    assert base == document(sampling={"numGenerations": 4})


def test_the_project_does_not_rename_a_job_that_has_a_name():
    assert merged(document(), "-p", "other").metadata.name == "a"


@pytest.mark.parametrize("spec", [None, [], "text", {"sampling": None}, {"sampling": [1]}])
def test_a_section_that_must_be_a_mapping_and_is_not_is_reported(spec):
    base = document()
    base.data["spec"] = spec
    with pytest.raises(InvalidInputError, match=r"^job\.yaml: spec"):
        merged(base, "-g", "16")


def test_faults_of_file_and_flags_come_together_and_name_their_origin():
    with pytest.raises(InvalidInputError) as caught:
        merged(document(seed=-1), "-g", "1")
    file_fault, flag_fault = sorted(caught.value.faults, key=len)
    assert file_fault.startswith("job.yaml: spec.seed: Invalid value: -1: must")
    assert flag_fault.endswith("(set by -g/--num-generations)")


@settings(deadline=None)
@given(st.sampled_from([f for f in FLAGS if f.path.startswith("spec.")]), st.integers())
def test_a_value_that_is_put_is_found_at_its_path_and_nothing_else_changes(flag, value):
    manifest = document(model={"dtype": "float32"}).data
    put(manifest, flag.path, value)
    node = manifest
    for name in flag.path.split("."):
        node = node[name]
    assert node == value
    assert manifest["spec"]["model"]["dtype"] == "float32"


def test_a_manifest_without_flags_is_itself():
    base = document(seed=7)
    assert merged(base) == parse_manifest(base.data)
