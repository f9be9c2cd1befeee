"""What Events report to users. Aspects: when there is one, of what type, that it has words."""

import pytest

from grpo_operator.clients.events import Recorder
from grpo_operator.model.decision import Decision
from grpo_trainer.spec import Phase
from support.observations import condition, job, running, starting, status


class ApiServer:
    """Keeps the Events that it is given."""

    def __init__(self):
        self.events = []

    async def create(self, resource, namespace, body):
        self.events.append((body["type"], body["reason"], body["message"]))


@pytest.fixture
async def api():
    return ApiServer()


async def changed(api, old, new, reason="", message=""):
    decision = Decision(new, reason=reason, message=message)
    await Recorder(api, "me").changed(job(old), decision)


async def test_a_change_of_phase_is_reported_with_its_reason(api):
    await changed(api, starting(), running(), "Running", "attempt 1")
    assert api.events == [("Normal", "Running", "attempt 1")]


@pytest.mark.parametrize("phase", list(Phase)[1:])
async def test_no_event_is_without_words(api, phase):
    await changed(api, status(Phase.PENDING), status(phase), "Reason")
    ((kind, _, message),) = api.events
    assert message == f"Pending -> {phase}"
    assert kind == ("Warning" if phase in (Phase.RETRYING, Phase.FAILED) else "Normal")


def waiting(reason, message=""):
    found = condition("ClusterReady", "False", reason=reason)
    return status(Phase.STARTING, found.model_copy(update={"message": message}))


async def test_a_new_cause_of_waiting_is_reported_once(api):
    await changed(api, waiting("PodsPending"), waiting("ImagePullBackOff", "no image"))
    await changed(api, waiting("ImagePullBackOff"), waiting("ImagePullBackOff", "still none"))
    assert api.events == [("Warning", "ImagePullBackOff", "no image")]


async def test_a_cause_without_words_is_reported_in_some(api):
    await changed(api, waiting("PodsPending"), waiting("FailedCreateHeadPod"))
    assert api.events == [("Warning", "FailedCreateHeadPod", "the pods are not ready")]


async def test_a_head_that_stops_responding_is_reported_once(api):
    text = "attempt 1: the head does not respond"
    found = condition("Training", "Unknown", reason="HeadNotAnswering")
    silent = status(Phase.RUNNING, found.model_copy(update={"message": text}))
    await changed(api, running(), silent)
    await changed(api, silent, silent.model_copy(update={"attempt": 1}))
    await changed(api, silent, running())
    assert api.events == [("Warning", "HeadNotAnswering", text)]


async def test_what_every_start_goes_through_is_not_reported(api):
    await changed(api, waiting("Creating"), waiting("PodsPending", "head: 0 of 1 ready"))
    assert api.events == []
