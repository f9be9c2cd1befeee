"""How an error ends a run: 64 for input that can never work, 1 for outages, else a traceback."""

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests

from grpo_trainer.driver.failures import classify
from grpo_trainer.driver.ray_calls import ConsumersLostError
from grpo_trainer.errors import InvalidInputError, RunFailedError
from grpo_trainer.outages import is_outage


def answered(status: int) -> requests.HTTPError:
    response: Any = SimpleNamespace(status_code=status)
    return requests.HTTPError(f"{status}", response=response)


def wrapped(cause: BaseException) -> OSError:
    """As transformers reports it."""
    try:
        try:
            raise cause
        except BaseException as error:
            raise OSError("org/model is not a local folder") from error
    except OSError as error:
        return error


@pytest.mark.parametrize(
    "cause",
    [
        *map(answered, (429, 500, 502, 503, 504)),
        *(requests.ConnectionError("refused"), requests.ReadTimeout("slow")),
        *(TimeoutError(), ConnectionResetError(), OSError(errno.ESTALE, "stale file handle")),
    ],
    ids=repr,
)
def test_outages_are_retryable(cause: BaseException, tmp_path: Path) -> None:
    assert is_outage(wrapped(cause))
    assert isinstance(classify(cause, tmp_path), RunFailedError)
    refused = InvalidInputError("spec.model.path: ...")
    refused.__cause__ = wrapped(cause)
    assert isinstance(classify(refused, tmp_path), RunFailedError)


@pytest.mark.parametrize(
    "cause",
    [
        *map(answered, (401, 403, 404)),
        *(FileNotFoundError("config.json"), PermissionError(errno.EACCES, "x"), KeyError("a")),
    ],
    ids=repr,
)
def test_what_the_hub_refuses_or_the_disk_lacks_is_not_an_outage(
    cause: BaseException, tmp_path: Path
) -> None:
    assert not is_outage(wrapped(cause))
    refused = InvalidInputError("spec.model.path: ...")
    refused.__cause__ = wrapped(cause)
    assert classify(refused, tmp_path) is refused


def test_a_full_disk_is_one_sentence_with_what_to_do(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "checkpoints"))
    found = classify(ExceptionGroup("", [full]), tmp_path)
    assert isinstance(found, RunFailedError)
    assert "no space left on device" in str(found) and "resume" in str(found)
    assert "\n" not in str(found)


def test_lost_consumers_are_retryable(tmp_path: Path) -> None:
    assert isinstance(classify(ConsumersLostError("died"), tmp_path), RunFailedError)


def test_an_unexpected_error_keeps_its_traceback(tmp_path: Path) -> None:
    error = KeyError("bug")
    assert classify(ExceptionGroup("", [error]), tmp_path) is error
