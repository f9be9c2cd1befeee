"""What the API server refuses.

Aspects: the reason and the message in a job's status, conflicts of deletions and of creations.
"""

import pytest

from grpo_operator.clients.errors import AlreadyExistsError, ConflictError, RefusedError
from grpo_operator.clients.tokens import Tokens
from grpo_operator.controller.act import Actor, problem_of
from grpo_operator.model.decision import CreateCluster, DeleteCluster
from grpo_operator.model.resources import CLAIMS, CLUSTERS
from grpo_operator.settings import Settings
from support.observations import job, observed


class Conflicting:
    """An API server on which every deletion conflicts."""

    async def delete(self, *_):
        raise ConflictError(409, "Conflict", "changed meanwhile")


@pytest.mark.parametrize(
    ("code", "reason", "message", "word"),
    [
        (403, "Forbidden", 'pods "a" is forbidden: exceeded quota: small', "QuotaExceeded"),
        (400, "", 'admission webhook "w.io" denied the request: no', "AdmissionDenied"),
        (
            422,
            "Invalid",
            "rayclusters \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' "
            "denied request: no",
            "AdmissionDenied",
        ),
        (403, "Forbidden", "cannot create resource", "Forbidden"),
        (400, "", "no words", "Refused"),
        (
            400,
            "BadRequest",
            'RayCluster in version "v1" cannot be handled as a RayCluster: strict decoding error: '
            'unknown field "spec.headGroupSpec.template.spec.nodeSelectr"',
            "InvalidPodTemplate",
        ),
        (
            400,
            "BadRequest",
            'strict decoding error: unknown field "spec.workerGroupSpecs[0].numOfHosts"',
            "UnsupportedField",
        ),
    ],
)
def test_a_refusal_has_a_word_and_keeps_its_text(code, reason, message, word):
    problem = problem_of(RefusedError(code, reason, message))
    assert (problem.reason, problem.message) == (word, message)


async def test_a_deletion_that_conflicts_is_not_taken_for_done():
    actor = Actor(Conflicting(), observer=None, tokens=None, settings=Settings())
    with pytest.raises(ConflictError):
        await actor.perform(observed(job()), DeleteCluster("cluster-uid"))


class Creating:
    """An API server on which the creation of one kind fails."""

    def __init__(self, resource, error):
        self.resource, self.error, self.created = resource, error, []

    async def create(self, resource, *_):
        if resource is self.resource:
            raise self.error
        self.created.append(resource)


async def created_with(error):
    api = Creating(CLAIMS, error)
    actor = Actor(api, observer=None, tokens=Tokens(api, b"key"), settings=Settings())
    await actor.perform(observed(job(storage={"size": "1Gi"})), CreateCluster())
    return api.created


async def test_a_claim_that_exists_is_used():
    exists = AlreadyExistsError(409, "AlreadyExists", "the claim exists")
    assert CLUSTERS in await created_with(exists)


async def test_contention_for_a_quota_does_not_pass_for_an_existing_claim():
    contention = ConflictError(409, "Conflict", "the object has been modified: resourcequotas")
    with pytest.raises(ConflictError):
        await created_with(contention)
