"""Tokens of Ray: derived from the key of the operator, which is created once; earlier releases."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_operator.clients.errors import AlreadyExistsError, ForbiddenError, NotFoundError
from grpo_operator.clients.tokens import Tokens, derive, load_key
from grpo_operator.model.naming import child_name
from support.observations import UID, job


class Secrets:
    """The Secrets of an API server."""

    def __init__(self):
        self.found, self.refusal, self.read = {}, None, []

    async def get(self, resource, namespace, name):
        self.read.append(name)
        if self.refusal is not None:
            raise self.refusal
        if name not in self.found:
            raise NotFoundError(404, "NotFound", name)
        return self.found[name]

    async def create(self, resource, namespace, body):
        name = body["metadata"]["name"]
        if name in self.found:
            raise AlreadyExistsError(409, "AlreadyExists", name)
        self.found[name] = body
        return body


@given(st.binary(min_size=32, max_size=32), st.uuids(), st.uuids())
def test_a_token_depends_on_key_and_job_alone(key, one, other):
    assert derive(key, str(one)) == derive(key, str(one))
    assert (derive(key, str(one)) == derive(key, str(other))) == (one == other)
    assert derive(key, str(one)) != derive(key + b"x", str(one))


async def test_the_key_is_created_once_and_read_by_every_replica():
    secrets = Secrets()
    key = await load_key(secrets, "system", "operator-key")
    assert len(key) == 32
    assert await load_key(secrets, "system", "operator-key") == key
    assert secrets.found["operator-key"]["immutable"] is True


async def test_a_replica_that_creates_the_key_second_uses_the_first():
    secrets = Secrets()
    first = await load_key(secrets, "system", "operator-key")

    class Late(Secrets):
        async def get(self, resource, namespace, name):
            if not self.read:
                self.read.append(name)
                raise NotFoundError(404, "NotFound", name)
            return secrets.found[name]

    late = Late()
    late.found = secrets.found
    assert await load_key(late, "system", "operator-key") == first


async def test_a_token_of_an_earlier_release_is_read_once_the_head_refuses_ours():
    secrets = Secrets()
    old = {"token": base64.b64encode(b"random").decode()}
    secrets.found[child_name("math", UID)] = {"data": old}
    tokens = Tokens(secrets, b"key")
    assert tokens.of(job()) == derive(b"key", UID)
    assert await tokens.refused(job()) == ""
    assert tokens.of(job()) == "random"


@pytest.mark.parametrize(
    ("refusal", "data"),
    [
        (ForbiddenError(403, "Forbidden", "cannot get secrets"), {}),
        (None, None),
        (None, {"token": "%%%"}),
        (None, {}),
    ],
)
async def test_a_secret_that_cannot_be_read_is_reported_and_not_read_at_each_poll(refusal, data):
    secrets = Secrets()
    secrets.refusal = refusal
    if data is not None:
        secrets.found[child_name("math", UID)] = {"data": data}
    tokens = Tokens(secrets, b"key")
    for _ in range(3):
        fault = await tokens.refused(job())
        assert f"cannot read Secret {child_name('math', UID)}" in fault
    assert len(secrets.read) == 1
    assert tokens.of(job()) == derive(b"key", UID)
