"""The files beside the weights of a checkpoint in the Hub's format."""

import json
import shutil
from pathlib import Path

from grpo_trainer.spec import GRPOJobSpec

from .prepare import Prepared

CONFIG = "config.json"


def write_model_files(directory: Path, prepared: Prepared, spec: GRPOJobSpec) -> None:
    """Write configuration, tokenizer and, where the model has some, its Python code."""
    _write_config(directory, prepared.model_path, spec)
    if prepared.generation_config is not None:
        prepared.generation_config.save_pretrained(directory)
    prepared.tokenizer.save_pretrained(directory)
    source = Path(prepared.model_path)
    for code in source.glob("*.py") if source.is_dir() else ():
        shutil.copy2(code, directory / code.name)


def _write_config(directory: Path, source: str, spec: GRPOJobSpec) -> None:
    """Write the model's own config.json, with the precision of the weights.

    transformers would write it in the form of its version, which other versions cannot read. It
    does write that of remote code, where it adds the repository to the names of the modules.
    """
    from transformers import AutoConfig
    from transformers.utils import cached_file

    dtype = str(spec.model.dtype)
    stored = json.loads(Path(str(cached_file(source, CONFIG))).read_text())
    if "auto_map" in stored:
        config = AutoConfig.from_pretrained(source, trust_remote_code=spec.model.trust_remote_code)
        config.torch_dtype = dtype
        config.save_pretrained(directory)
        return
    # transformers 5 writes `dtype`, and reads either.
    stored["dtype" if "dtype" in stored else "torch_dtype"] = dtype
    (directory / CONFIG).write_text(json.dumps(stored, indent=2) + "\n")
