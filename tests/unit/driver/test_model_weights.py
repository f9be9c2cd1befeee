"""Weight files are checked before anything is loaded.

Aspects: complete files, in one or several parts; every way to cut or damage one names the file;
weights in other formats are left to transformers.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save, save_file

from grpo_trainer.driver.model_weights import count_parameters, read_header
from grpo_trainer.errors import InvalidInputError

TENSORS = {"a": np.zeros((3, 4), np.float32), "b": np.zeros(5, np.float16)}


@pytest.fixture
def single(tmp_path: Path) -> Path:
    save_file(TENSORS, tmp_path / "model.safetensors", metadata={"format": "pt"})
    return tmp_path


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    weight_map = {}
    for number, (name, tensor) in enumerate(TENSORS.items(), 1):
        file = f"model-0000{number}-of-00002.safetensors"
        save_file({name: tensor}, tmp_path / file)
        weight_map[name] = file
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return tmp_path


def test_parameters_are_counted_from_the_header(single: Path) -> None:
    assert count_parameters(single) == 17


def test_parameters_of_all_files_are_counted(sharded: Path) -> None:
    assert count_parameters(sharded) == 17


@given(st.data())
def test_a_file_that_is_cut_off_anywhere_is_refused_by_name(data) -> None:
    import tempfile

    whole = save(TENSORS)
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "model.safetensors"
        file.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
        with pytest.raises(InvalidInputError, match=r"spec\.model\.path: .*model\.safetensors"):
            read_header(file)


def test_a_file_with_bytes_appended_is_refused(single: Path) -> None:
    with (single / "model.safetensors").open("ab") as file:
        file.write(b"0")
    with pytest.raises(InvalidInputError, match=r"must have \d+ bytes by its header and has \d+"):
        count_parameters(single)


@pytest.mark.parametrize("header", [b"[]", b"{", b'{"a": 1}', b'{"a": {"shape": [1]}}'])
def test_a_damaged_header_is_refused(tmp_path: Path, header: bytes) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(InvalidInputError, match="header is damaged"):
        count_parameters(tmp_path)


def test_a_file_that_is_missing_is_named(sharded: Path) -> None:
    (sharded / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(InvalidInputError, match=r"model-00002-of-00002\.safetensors"):
        count_parameters(sharded)


def test_a_tensor_that_is_missing_is_named(sharded: Path) -> None:
    index = sharded / "model.safetensors.index.json"
    body = json.loads(index.read_text())
    body["weight_map"]["lm_head"] = "model-00001-of-00002.safetensors"
    index.write_text(json.dumps(body))
    with pytest.raises(InvalidInputError, match="must contain lm_head"):
        count_parameters(sharded)


@pytest.mark.parametrize("body", ["", "{}", "[1]"])
def test_a_damaged_index_is_refused(tmp_path: Path, body: str) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(body)
    with pytest.raises(InvalidInputError, match="must be JSON with a weight_map"):
        count_parameters(tmp_path)


def test_a_directory_without_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"must contain weights: model\.safetensors"):
        count_parameters(tmp_path)


def test_other_formats_are_left_to_transformers(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    assert count_parameters(tmp_path) is None
