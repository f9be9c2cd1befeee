"""What the API server refuses.

Aspects: the one word and the text that a job's status shows, deletions that conflict.
"""

import pytest

from grpo_operator.clients.kube import ConflictError, RefusedError
from grpo_operator.controller.act import Actor, problem_of
from grpo_operator.model.decision import DeleteCluster
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
    ],
)
def test_a_refusal_has_a_word_and_keeps_its_text(code, reason, message, word):
    problem = problem_of(RefusedError(code, reason, message))
    assert (problem.reason, problem.message) == (word, message)


async def test_a_deletion_that_conflicts_is_not_taken_for_done():
    actor = Actor(Conflicting(), observer=None, settings=Settings())
    with pytest.raises(ConflictError):
        await actor.perform(observed(job()), DeleteCluster("cluster-uid"))
