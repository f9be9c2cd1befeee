"""The files beside the weights of a checkpoint in the Hub's format."""

import shutil
from pathlib import Path

from grpo_trainer.spec import GRPOJobSpec

from .prepare import Prepared


def write_model_files(directory: Path, prepared: Prepared, spec: GRPOJobSpec) -> None:
    """Write configuration, tokenizer and, where the model has some, its Python code."""
    from transformers import AutoConfig

    source, trust = prepared.model_path, spec.model.trust_remote_code
    config = AutoConfig.from_pretrained(source, trust_remote_code=trust)
    config.torch_dtype = str(spec.model.dtype)
    config.save_pretrained(directory)
    if prepared.generation_config is not None:
        prepared.generation_config.save_pretrained(directory)
    prepared.tokenizer.save_pretrained(directory)
    for code in Path(source).glob("*.py") if Path(source).is_dir() else ():
        shutil.copy2(code, directory / code.name)
