"""`grpo plan`: the page, the error for a run that does not fit, a model without a configuration."""

import shutil
from pathlib import Path

import pytest
import yaml

from grpo_trainer.cli.main import main

CONFIG = Path(__file__).parent / "qwen2.5-7b.json"


@pytest.fixture
def manifest(tmp_path):
    """Writes a manifest that trains Qwen2.5-7B on eight accelerators."""
    model = tmp_path / "model"
    model.mkdir()
    shutil.copy(CONFIG, model / "config.json")

    def write(**sections) -> str:
        spec = {
            "model": {"path": str(model)},
            "consumers": {"processesPerReplica": 8, "zeroStage": 2},
            "batch": {"trainBatchSize": 8},
        }
        body = {
            "apiVersion": "grpo-operator.io/v1alpha1",
            "kind": "GRPOJob",
            "metadata": {"name": "a"},
            "spec": spec | sections,
        }
        path = tmp_path / "job.yaml"
        path.write_text(yaml.safe_dump(body))
        return str(path)

    return write


def test_the_page_lists_all_memory(manifest, capsys):
    assert main(["plan", manifest()]) == 0
    assert capsys.readouterr().out == PAGE


def test_a_run_that_does_not_fit_is_an_error_after_the_page(manifest, capsys):
    assert main(["plan", manifest(), "--gpu-memory", "40"]) == 64
    printed = capsys.readouterr()
    assert printed.out == PAGE
    assert printed.err == (
        "spec.batch.trainMicrobatchSize: Invalid value: 2: a consumer needs 49.4 GiB of an "
        "accelerator with 40.0 GiB; 1 would need 47.7 GiB, which is still too much\n"
    )


def test_each_job_of_a_file_has_a_page_and_its_faults(manifest, capsys):
    path = Path(manifest())
    path.write_text(f"{path.read_text()}---\n{path.read_text()}")
    assert main(["plan", str(path), "--gpu-memory", "40"]) == 64
    printed = capsys.readouterr()
    assert printed.out == f"{path}, document 1\n{PAGE}{path}, document 2\n{PAGE}"
    faults = printed.err.splitlines()
    assert [fault.split(": spec.")[0] for fault in faults] == [
        f"{path}, document 1",
        f"{path}, document 2",
    ]


def test_vllm_fills_the_accelerator_with_sequences(manifest, capsys):
    assert main(["plan", manifest(producers={"backend": "vllm"})]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "vLLM generates 255 sequences of full length at the same time"


def test_a_model_without_a_configuration_is_an_error(manifest, capsys, tmp_path):
    (tmp_path / "model" / "config.json").unlink()
    assert main(["plan", manifest()]) == 64
    assert "spec.model.path: Invalid value: " in capsys.readouterr().err


PAGE = """\
qwen2 with 7.62 billion parameters

consumer process                         49.39 GiB
  weights                                14.19 GiB
  gradients                               1.77 GiB
  fp32 master weights                     3.55 GiB
  Adam moments                            7.09 GiB
  reference policy                       14.19 GiB
  CUDA context, fragmentation             2.00 GiB
  backward pass: activations              3.45 GiB
  backward pass: logits                   3.15 GiB
  optimizer step: fp32 gradients          3.55 GiB

producer process                         30.19 GiB
  weights                                14.19 GiB
  KV cache                               14.00 GiB
  CUDA context, fragmentation             2.00 GiB

hosts and volume
  consumer pod while models load        226.96 GiB
  weights to publish, first consumers    14.19 GiB
  object store, per node                 42.56 GiB
  one checkpoint                         99.30 GiB
  volume for checkpoints                397.19 GiB
"""
