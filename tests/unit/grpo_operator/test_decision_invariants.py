"""What holds in every order of events, crashes of the operator among them.

Aspects: one cluster, one driver, no attempt twice, final phases are final, failures are counted
within the limit, and deciding again changes nothing (the simulated cluster asserts all of it);
decisions about arbitrary observations, even impossible ones, converge; a job whose cluster
behaves always ends.
"""

from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from grpo_operator.controller.decide import decide
from grpo_operator.model.decision import TERMINAL
from grpo_operator.model.observed import Problem, RayJob, RayJobState, Role
from grpo_trainer.spec import Condition, ConditionStatus, ConditionType, Phase
from support.kstatus import CURRENT, FAILED, IN_PROGRESS, kstatus
from support.observations import NOW, at, cluster, job, observed, pod, running, status
from support.simulated_cluster import SimulatedCluster, outcome

ENDS = [(RayJobState.SUCCEEDED, 0), (RayJobState.STOPPED, None)]
ENDS += [(RayJobState.FAILED, code) for code in (None, 1, 64, 75)]
TERMS = {
    "backoffLimit": 2,
    "activeDeadlineSeconds": 4000,
    "startupDeadlineSeconds": 600,
    "stallTimeoutSeconds": 300,
    "ttlSecondsAfterFinished": 60,
}

HEALTH = dict.fromkeys(Phase, IN_PROGRESS) | {
    Phase.RUNNING: CURRENT,
    Phase.SUSPENDED: CURRENT,
    Phase.SUCCEEDED: CURRENT,
    Phase.FAILED: FAILED,
}


class AnyOrderOfEvents(RuleBasedStateMachine):
    @initialize(queued=st.booleans(), suspend=st.booleans())
    def create(self, queued: bool, suspend: bool) -> None:
        queue = {"queueName": "gpus"} if queued else {}
        self.world = SimulatedCluster({**TERMS, **queue, "suspend": suspend})

    @precondition(lambda self: not self.world.deleted)
    @rule(times=st.integers(1, 4))
    def all_goes_well(self, times: int) -> None:
        for _ in range(times):
            self.world.reconcile()
            self.world.remove_leaving_pods()
            self.world.create_pods()
            self.world.make_ready(True)
            self.world.start_driver()
            self.world.step()
            self.world.now += timedelta(seconds=20)
            if self.world.deleted:
                return

    @precondition(lambda self: not self.world.deleted)
    @rule()
    def reconcile(self) -> None:
        self.world.reconcile()

    @precondition(lambda self: not self.world.deleted)
    @rule(actions=st.integers(0, 3))
    def crash(self, actions: int) -> None:
        self.world.reconcile(actions)

    @rule(end=st.sampled_from(ENDS))
    def driver_ends(self, end: tuple[RayJobState, int | None]) -> None:
        self.world.end_driver(*end)

    @rule(
        event=st.sampled_from(
            [
                "create_pods",
                "lose_cluster",
                "lose_head",
                "restart_head",
                "preempt",
                "admit",
                "remove_leaving_pods",
                "start_driver",
                "step",
            ]
        )
    )
    def something_happens(self, event: str) -> None:
        getattr(self.world, event)()

    @rule(ready=st.booleans(), answers=st.booleans())
    def network_fails_or_recovers(self, ready: bool, answers: bool) -> None:
        self.world.make_ready(ready)
        self.world.answers = answers

    @rule(suspend=st.booleans(), replicas=st.integers(1, 4))
    def user_edits(self, suspend: bool, replicas: int) -> None:
        self.world.fields |= {"suspend": suspend, "producers": {"replicas": replicas}}

    @rule(seconds=st.sampled_from([1, 10, 100, 1000]))
    def time_passes(self, seconds: int) -> None:
        self.world.now += timedelta(seconds=seconds)

    @invariant()
    def kstatus_reads_the_phase(self) -> None:
        manifest = {
            "metadata": {"generation": 1},
            "status": self.world.status.model_dump(mode="json", by_alias=True),
        }
        assert kstatus(manifest) == HEALTH[self.world.status.phase]

    @invariant()
    def converges(self) -> None:
        for seconds in (0, 15, 70):
            assert self.world.deleted or self.world.settles(seconds)


AnyOrderOfEvents.TestCase.settings = settings(
    max_examples=200, stateful_step_count=25, deadline=None
)
TestAnyOrderOfEvents = AnyOrderOfEvents.TestCase

moments = st.integers(-4000, 100).map(at)
conditions = st.lists(
    st.builds(
        Condition,
        type=st.sampled_from(ConditionType),
        status=st.sampled_from(ConditionStatus),
        last_transition_time=moments,
    ),
    unique_by=lambda condition: condition.type,
)
statuses = st.builds(
    lambda phase, found, attempt, restarts: status(
        phase,
        *found,
        attempt=attempt,
        restarts=restarts,
        start_time=at(-3000),
        completion_time=NOW if phase in TERMINAL else None,
    ),
    st.sampled_from(Phase),
    conditions,
    st.integers(0, 3),
    st.integers(0, 2),
)
any_pods = st.builds(
    lambda role, number, ready, created, deletion_deadline: pod(
        role,
        number,
        ready=ready,
        created=created,
        ready_changed=created,
        deletion_deadline=deletion_deadline,
    ),
    st.sampled_from(Role),
    st.integers(0, 5),
    st.booleans(),
    moments,
    st.none() | moments,
)
any_ray_jobs = st.lists(
    st.builds(RayJob, st.integers(1, 3), st.sampled_from(RayJobState), st.sampled_from([None, 1])),
    unique_by=lambda job: job.attempt,
)
any_clusters = st.builds(
    lambda deleting, suspended, producers: cluster(
        deleting=deleting, suspended=suspended, producers=producers
    ),
    st.booleans(),
    st.booleans(),
    st.integers(1, 3),
)


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_decisions_about_arbitrary_observations_converge(data):
    terms = {**TERMS, "suspend": data.draw(st.booleans())}
    state = data.draw(statuses)
    world = {
        "cluster": data.draw(st.none() | any_clusters),
        "pods": tuple(data.draw(st.lists(any_pods, max_size=5))),
        "ray_jobs": data.draw(st.none() | any_ray_jobs.map(tuple)),
        "step_since": data.draw(st.none() | moments),
        "problem": data.draw(st.none() | st.just(Problem("Forbidden", "no"))),
    }
    for _ in range(20):
        decision = decide(observed(job(state, **terms), **world), NOW)
        assert state.phase not in TERMINAL or outcome(decision.status) == outcome(state)
        assert decision.requeue_after is None or decision.requeue_after >= 0
        if decision.status == state:
            break
        state = decision.status
    else:
        raise AssertionError(f"still writing after 20 decisions: {state}")
    if decision.requeue_after == 0:
        assert state.phase in TERMINAL, "a hot loop"


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(ENDS), min_size=4, max_size=4))
def test_a_job_whose_cluster_behaves_always_ends_and_frees_its_pods(ends):
    world = SimulatedCluster({**TERMS, "suspend": False, "ttlSecondsAfterFinished": None})
    script = iter(ends)
    for _ in range(100):
        world.reconcile()
        world.remove_leaving_pods()
        world.create_pods()
        world.make_ready(True)
        world.step()
        if any(d.state is RayJobState.RUNNING for d in world.drivers.values()):
            world.end_driver(*next(script))
        world.start_driver()
        world.now += timedelta(seconds=20)
        if world.status.phase in TERMINAL and world.cluster is None:
            break
    assert world.status.phase in TERMINAL
    first_final = next((e for e in ends[:3] if e[1] in (0, 64)), None)
    succeeded = first_final is not None and first_final[1] == 0
    assert world.status.phase is (Phase.SUCCEEDED if succeeded else Phase.FAILED)


def test_an_unchanged_running_job_writes_nothing():
    state = running()
    subject = observed(job(state), ray_jobs=(RayJob(1, RayJobState.RUNNING),))
    first = decide(subject, NOW).status
    for seconds in range(0, 50, 5):
        decision = decide(observed(job(first), ray_jobs=subject.ray_jobs), at(seconds))
        assert (decision.actions, decision.status) == ((), first)
