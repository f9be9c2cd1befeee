"""Parquet files of data sets on the Hugging Face Hub, downloaded once into its cache.

The cache is below `HF_HOME`, on the volume in a cluster; `HF_TOKEN` opens gated and private
repositories, and `HF_ENDPOINT` replaces the Hub.
"""

import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

from ..errors import RunFailedError
from ..outages import is_outage
from ..row_faults import RowFault, refuse

FORM = "hf://OWNER/NAME[/CONFIG][@REVISION]:SPLIT"
_ADDRESS = re.compile(
    r"hf://(?P<repository>[^/@:\s]+/[^/@:\s]+)(?:/(?P<config>[^@:\s]+))?"
    r"(?:@(?P<revision>[^:\s]+))?:(?P<split>[^/:\s]+)"
)
_PART = re.compile(r"(?P<split>.+?)(?:-\d+-of-\d+)?\.parquet")
_SHOWN = 20
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HubData:
    """A split of a data set on the Hub."""

    repository: str
    config: str | None
    """Folder of its files; None where there is only one."""
    revision: str | None
    """Branch, tag or commit; None is the main branch."""
    split: str


def parse_address(path: str) -> HubData:
    """Raises InvalidDataError if it is no address of a split."""
    match = _ADDRESS.fullmatch(path)
    if match is None:
        raise refuse([RowFault(path, f"must be {FORM}", "address")])
    return HubData(match["repository"], match["config"], match["revision"], match["split"])


def hub_files(path: str) -> list[tuple[str, Path]]:
    """The parquet files of a split in order: name at the Hub, and place in the cache.

    Raises InvalidDataError for a repository, revision, configuration or split that does not exist
    or may not be read, and RunFailedError while the Hub cannot be reached.
    """
    from huggingface_hub import HfApi, hf_hub_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    address = parse_address(path)
    repository, revision = address.repository, address.revision
    try:
        info = HfApi().dataset_info(repository, revision=revision)
        names = [sibling.rfilename for sibling in info.siblings or ()]
        record: dict[str, Any] = {"revision": info.sha, "names": _chosen(path, address, names)}
        _log.info("%s: revision %s, %d files", path, info.sha, len(record["names"]))
        files = [
            (name, Path(hf_hub_download(**_file(path, name, record)))) for name in record["names"]
        ]
    except GatedRepoError:
        must = "must be a data set that HF_TOKEN gives access to"
        raise refuse([RowFault(path, must, f"repository {repository!r}")]) from None
    except RevisionNotFoundError:
        must = "must be a branch, tag or commit of the repository"
        raise refuse([RowFault(path, must, f"revision {revision!r}")]) from None
    except RepositoryNotFoundError:
        must = "must be a data set on the Hub; a private one needs HF_TOKEN"
        raise refuse([RowFault(path, must, f"repository {repository!r}")]) from None
    # Clients of HTTP differ between versions of the library, and so do the types of an outage.
    except Exception as error:
        offline = isinstance(error, OfflineModeIsEnabled | LocalEntryNotFoundError)
        if offline or is_outage(error):
            return _cached(path, error)
        if not isinstance(error, HFValidationError | HfHubHTTPError):
            raise
        reason = str(error).strip().partition("\n")[0]
        must = f"must be a data set on the Hub ({reason})"
        raise refuse([RowFault(path, must, f"repository {repository!r}")]) from None
    _keep(record, _record(path))
    return files


def _cached(path: str, error: Exception) -> list[tuple[str, Path]]:
    """The files of an earlier run, while the Hub cannot be reached."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    reason = str(error).strip().partition("\n")[0]
    try:
        record = json.loads(_record(path).read_text())
        files = [
            (name, Path(hf_hub_download(**_file(path, name, record), local_files_only=True)))
            for name in record["names"]
        ]
    except (FileNotFoundError, LocalEntryNotFoundError):
        raise RunFailedError(
            f"{path}: the Hub cannot be reached, and the cache does not have the files ({reason})"
        ) from error
    _log.warning("%s: the Hub cannot be reached; using the files in the cache", path)
    return files


def _keep(record: Mapping[str, Any], place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    temporary = place.with_suffix(f".{os.getpid()}")
    temporary.write_text(json.dumps(record))
    temporary.replace(place)


def _file(path: str, name: str, record: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "repo_id": parse_address(path).repository,
        "filename": name,
        "repo_type": "dataset",
        "revision": record["revision"],
    }


def _record(path: str) -> Path:
    """The commit and the files of an address when all of them were last downloaded.

    The cache alone does not show whether a split is whole or what an interrupted run left of it.
    """
    from huggingface_hub.constants import HF_HOME

    return Path(HF_HOME, "grpo-operator", f"{sha256(path.encode()).hexdigest()[:32]}.json")


def _chosen(path: str, address: HubData, names: Sequence[str]) -> list[str]:
    """The files of the split and configuration; raises InvalidDataError if there are none."""
    files = [PurePosixPath(name) for name in names if name.endswith(".parquet")]
    if not files:
        hint = "@refs/convert/parquet has those that the Hub made, for most data sets"
        raise refuse([RowFault(path, f"must have parquet files; {hint}", "revision")])
    configs = sorted({_config(file) for file in files})
    if address.config is not None and address.config not in configs:
        must = f"must be one of {_listed(configs)}"
        raise refuse([RowFault(path, must, f"configuration {address.config!r}")])
    of_config = [f for f in files if address.config in (None, _config(f))]
    of_split = sorted(f for f in of_config if _split(f) == address.split)
    if not of_split:
        must = f"must be one of {_listed(sorted({_split(file) for file in of_config}))}"
        raise refuse([RowFault(path, must, f"split {address.split!r}")])
    found = sorted({_config(file) for file in of_split})
    if len(found) > 1:
        must = f"must be named, as in {FORM}: one of {_listed(found)}"
        raise refuse([RowFault(path, must, "configuration")])
    return [str(file) for file in of_split]


def _config(file: PurePosixPath) -> str:
    """`main` of `main/train-00000-of-00001.parquet` and of `main/train/0000.parquet`."""
    folder = file.parent.parent if _in_split_folder(file) else file.parent
    return "" if str(folder) == "." else str(folder)


def _split(file: PurePosixPath) -> str:
    if _in_split_folder(file):
        return file.parent.name
    match = _PART.fullmatch(file.name)
    return match["split"] if match else file.stem


def _in_split_folder(file: PurePosixPath) -> bool:
    """Whether the file's own name is only a number: the layout of the Hub's conversion."""
    return file.stem.isdigit()


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(repr(name) for name in names[:_SHOWN]) + more
