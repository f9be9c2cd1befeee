"""The configuration of a model, without its weights."""

from pathlib import Path

from ..errors import InvalidInputError, invalid


def config_directory(path: str) -> Path:
    """The directory with the `config.json` of a local model or of a hub id.

    Raises InvalidInputError when there is none, or when the hub cannot be reached.
    """
    if Path(path).is_dir():
        return Path(path)
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(hf_hub_download(path, "config.json")).parent
    except (HFValidationError, HfHubHTTPError, LocalEntryNotFoundError) as error:
        reason = str(error).splitlines()[0]
        must = f"must be a directory or a hub id with a config.json: {reason}"
        raise InvalidInputError(invalid("spec.model.path", path, must)) from error
