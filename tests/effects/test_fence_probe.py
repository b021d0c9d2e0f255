"""Whether the admission policy is in force: nothing but its own refusal proves it."""

import pytest
from builders import agent, facts, virtual
from effects_api import NODES, FakeApi, Reply, refusal, reply
from effects_cluster import FakeCluster
from effects_time import in_virtual_time

from clusterconform.contract.facts import NodeFacts
from clusterconform.contract.names import FENCE_POLICY
from clusterconform.contract.request import JSON
from clusterconform.effects.fence import stands
from clusterconform.effects.metrics import Metrics

POLICY = f"ValidatingAdmissionPolicy '{FENCE_POLICY}' with binding '{FENCE_POLICY}' denied request: node pi"
ANSWERS = {
    "200": reply({"kind": "Status", "status": "Success"}),
    "a right is missing": refusal(403, 'User "somebody" cannot delete resource "nodes" in API group ""'),
    "another policy": refusal(403, "ValidatingAdmissionPolicy 'theirs' with binding 'theirs' denied request: no"),
    "a policy of a longer name": refusal(403, POLICY.replace(f"'{FENCE_POLICY}'", f"'{FENCE_POLICY}-old'")),
    "a webhook": refusal(403, f'admission webhook "{FENCE_POLICY}" denied the request'),
    "400": refusal(400),
    "401": refusal(401),
    "404": refusal(404),
    "409": refusal(409),
    "410": refusal(410),
    "422": refusal(422, causes=1),
    "422 of a lost test": refusal(422),
    "429": refusal(429),
    "500 in its words": refusal(500, POLICY),
    "503": refusal(503),
    "no answer": Reply(hang=True),
    "a cut": Reply(cut=True),
}


def fleet(count: int) -> tuple[FakeApi, list[NodeFacts]]:
    """So many agents, as the API server has them and as we know them."""
    api = FakeApi()
    stored = [api.put(NODES, agent(f"pi-{number}", uid=f"uid-{number}")) for number in range(count)]
    return api, [facts(raw) for raw in stored]


def tried(api: FakeApi) -> list[str]:
    """The nodes that were tried, in order."""
    return [sent.path.rpartition("/")[2] for sent in api.writes()]


async def asked(api: FakeApi, nodes: list[NodeFacts]) -> bool | None:
    """What the probe says."""
    return await stands(FakeCluster(api, Metrics()), nodes)


@in_virtual_time
async def test_the_policys_own_refusal_proves_it_at_the_first_try() -> None:
    api, nodes = fleet(3)
    assert await asked(api, nodes) is True
    assert tried(api) == ["pi-0"]
    assert len(api.names(NODES)) == 3


@in_virtual_time
async def test_a_policy_that_is_not_there_is_missed_and_nothing_goes() -> None:
    """The trial is a dry run: that nothing stops it must not cost a node."""
    api, nodes = fleet(3)
    api.fenced = False
    assert await asked(api, nodes) is False
    assert tried(api) == ["pi-0"]
    assert len(api.names(NODES)) == 3


@in_virtual_time
async def test_the_trial_is_a_dry_run_by_its_body_and_lacks_the_version_that_the_policy_wants() -> None:
    """The API server ignores dryRun in the query of a DELETE that has a body."""
    api, nodes = fleet(1)
    await asked(api, nodes)
    (sent,) = api.sent
    assert (sent.method, sent.path, sent.query, sent.content_type) == ("DELETE", f"{NODES}/pi-0", {}, JSON)
    assert sent.body == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "dryRun": ["All"],
        "preconditions": {"uid": "uid-0"},
    }


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
@in_virtual_time
async def test_no_other_answer_proves_it(answer: Reply) -> None:
    api, nodes = fleet(1)
    api.script("DELETE", f"{NODES}/pi-0", answer)
    assert await asked(api, nodes) is False
    assert len(api.sent) == 1


@pytest.mark.parametrize("gone", [refusal(404), refusal(409)], ids=["gone", "another life"])
@in_virtual_time
async def test_a_node_that_went_meanwhile_is_passed_over(gone: Reply) -> None:
    api, nodes = fleet(3)
    for name in ("pi-0", "pi-1"):
        api.script("DELETE", f"{NODES}/{name}", gone)
    assert await asked(api, nodes) is True
    assert tried(api) == ["pi-0", "pi-1", "pi-2"]


@in_virtual_time
async def test_after_three_tries_it_is_not_proven() -> None:
    api, nodes = fleet(5)
    for node in nodes[:3]:
        api.remove(NODES, node.name)
    assert await asked(api, nodes) is False
    assert tried(api) == ["pi-0", "pi-1", "pi-2"]


@in_virtual_time
async def test_any_other_answer_ends_the_tries() -> None:
    api, nodes = fleet(2)
    api.script("DELETE", f"{NODES}/pi-0", refusal(500))
    assert await asked(api, nodes) is False
    assert tried(api) == ["pi-0"]


@in_virtual_time
async def test_without_a_node_it_cannot_be_asked() -> None:
    api, _ = fleet(0)
    assert await asked(api, []) is None
    assert api.sent == []


@in_virtual_time
async def test_a_virtual_node_is_as_good_to_try_it_on() -> None:
    api = FakeApi()
    stored = api.put(NODES, virtual())
    assert await asked(api, [facts(stored)]) is True


@in_virtual_time
async def test_with_the_write_fence_shut_nothing_is_tried() -> None:
    api, nodes = fleet(1)
    assert await stands(FakeCluster(api, Metrics(), lambda _: False), nodes) is False
    assert api.sent == []


@in_virtual_time
async def test_why_it_is_not_proven_is_said_each_time_it_is_asked(caplog: pytest.LogCaptureFixture) -> None:
    api, nodes = fleet(1)
    await asked(api, nodes)
    assert caplog.records == []
    api.fenced = False
    await asked(api, nodes)
    (record,) = caplog.records
    assert record.getMessage() == "the admission policy that fences us is not in force"
