"""Reading manifests: several in a file, YAML as the API server reads it, JSON, and every way in
which a file can be invalid, each with its place."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_trainer.cli.manifests import read_document, read_documents
from grpo_trainer.errors import InvalidInputError
from grpo_trainer.spec import API_VERSION, GRPOJob

HEAD = f"apiVersion: {API_VERSION}\nkind: GRPOJob\nmetadata: {{name: a}}\n"


@pytest.fixture
def file(tmp_path):
    def write(content: str | bytes, name: str = "job.yaml") -> str:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write


def fault(path: str) -> str:
    """The one fault of a file that cannot be read, without the path."""
    with pytest.raises(InvalidInputError) as caught:
        read_documents(path)
    (text,) = caught.value.faults
    return text.removeprefix(f"{path}: ")


def test_every_document_of_a_file_is_read_and_empty_ones_are_left_out(file):
    path = file(f"---\n{HEAD}---\n---\n# only a comment\n---\n{HEAD}spec: {{seed: 7}}\n")
    first, second = read_documents(path)
    assert first.source == f"{path}, document 1"
    assert second.parse().spec.seed == 7


def test_a_run_takes_one_manifest(file):
    path = file(f"{HEAD}---\n{HEAD}")
    with pytest.raises(InvalidInputError, match="contains 2 manifests, must contain one"):
        read_document(path)


def test_numbers_are_read_as_the_api_server_reads_them(file):
    path = file("learningRate: 1e-6\nklCoefficient: 2E+1\ndate: 2024-01-02\nname: 1e\n")
    assert read_document(path).data == {
        "learningRate": 1e-6,
        "klCoefficient": 20.0,
        "date": "2024-01-02",
        "name": "1e",
    }


def test_anchors_and_merges_work(file):
    path = file("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\n")
    assert read_document(path).data["b"] == {"x": 1, "y": 3}


def test_a_json_file_keeps_characters_beyond_the_basic_plane(file):
    data = {**GRPOJob().to_manifest(), "spec": {"reward": {"systemPrompt": "\U0001f600"}}}
    path = file(json.dumps(data), "spec.json")
    assert read_document(path).parse().spec.reward.system_prompt == "\U0001f600"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a: 1\nb: [\n", "line 3, column 1: expected the node content, but found '<stream end>'"),
        ("a: 1\nb: 2\na: 3\n", "line 3, column 1: the key 'a' is given twice"),
        ("a: {b: 1, b: 2}\n", "line 1, column 11: the key 'b' is given twice"),
        ("a: !!python/name:os.system\n", "line 1, column 4: could not determine a constructor"),
        ("a: *b\n", "line 1, column 4: found undefined alias 'b'"),
        ("{[1]: 2}\n", "line 1, column 2: found unhashable key"),
        (b"a: \xff\n", "position 3: invalid start byte, in UTF-8 text"),
        (b"a: \x00\n", "position 3: special characters are not allowed"),
        ("[" * 600, "nested too deeply for a manifest"),
        ("", "Required value: a GRPOJob of grpo-operator.io/v1alpha1"),
        ("---\n# nothing\n", "Required value: a GRPOJob"),
    ],
)
def test_a_malformed_file_is_one_fault_with_its_place(file, content, message):
    assert fault(file(content)).startswith(message)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"a": 1,\n "b": }', "line 2, column 7: Expecting value"),
        ("", "line 1, column 1: Expecting value"),
        (b'"\xff"', "not JSON in UTF-8"),
        ("[" * 200_000, "not JSON in UTF-8"),
        ("null", "Required value: a GRPOJob"),
    ],
)
def test_malformed_json_is_one_fault_with_its_place(file, content, message):
    assert fault(file(content, "spec.json")).startswith(message)


def test_a_missing_file_and_a_directory_are_reported(tmp_path):
    assert fault(str(tmp_path / "none.yaml")) == "No such file or directory"
    assert fault(str(tmp_path)) == "Is a directory"


def test_an_object_of_another_kind_is_one_fault(file):
    path = file("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: []}\n")
    with pytest.raises(InvalidInputError) as caught:
        read_document(path).parse()
    assert caught.value.faults == (f'{path}: kind: Invalid value: "Pod": must be GRPOJob',)


def test_every_fault_of_a_manifest_is_reported_with_its_file(file):
    path = file(f"{HEAD}spec: {{sampling: {{numGenerations: 1, temp: 1}}, seed: x}}\n")
    with pytest.raises(InvalidInputError) as caught:
        read_document(path).parse()
    assert len(caught.value.faults) == 3
    assert all(f.startswith(f"{path}: spec.") for f in caught.value.faults)


@settings(deadline=None)
@given(st.binary(max_size=60) | st.text(alphabet="ab:-[]{}&*!|>#'\"\n ,?%@1", max_size=60))
def test_whatever_a_file_holds_it_is_read_or_refused_with_a_reason(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "fuzz.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    try:
        documents = read_documents(str(path))
    except InvalidInputError as error:
        assert error.faults
    else:
        assert documents
