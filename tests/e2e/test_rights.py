"""The rights that we ship against the requests that are made with them: none is missing, none is unused."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import pytest
import yaml
from operators import NODES, PROFILES, ROOT, OperatorProcess, operator
from reaping_stage import HOSTS, Stage, staged

from clusterconform.cli.demo.shipped import apply_file
from clusterconform.sandbox.builder import Builder
from clusterconform.sandbox.nodes import virtual_node

Json = dict[str, Any]

RBAC: Final = [item for item in yaml.safe_load_all((ROOT / "deploy/base/rbac.yaml").read_text()) if item]
# What the cluster itself lets everybody do: to ask what is there, and what one may do.
PROBE: Final = "/apis/apps/v1/namespaces/clusterconform-system/daemonsets/dks-runtime-probe"
BINDINGS: Final = "mutatingadmissionpolicybindings"
DISCOVERY: Final = 'RBAC: allowed by ClusterRoleBinding "system:'


@dataclass(frozen=True, slots=True)
class Right:
    """One thing that one rule allows; an empty namespace or name means any."""

    namespace: str
    group: str
    resource: str
    verb: str
    name: str

    def __str__(self) -> str:
        """As a person would say it."""
        place = self.namespace or "the cluster"
        return " ".join(filter(None, (self.verb, self.resource, self.group, self.name, "in", place)))

    def covers(self, asked: "Right") -> bool:
        """Whether a request needs no more than this."""
        return (
            (self.group, self.resource, self.verb) == (asked.group, asked.resource, asked.verb)
            and self.namespace in {"", asked.namespace}
            and self.name in {"", asked.name}
        )


def granted() -> Iterator[Right]:
    """Everything that the shipped rules allow, taken apart."""
    for item in RBAC:
        for rule in item.get("rules", []):
            place = item["metadata"].get("namespace", "")
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    for verb in rule["verbs"]:
                        for name in rule.get("resourceNames", [""]):
                            yield Right(place, group, resource, verb, name)


def asked(entry: Json) -> Right:
    """What a request of the audit log needed."""
    thing = entry["objectRef"]
    resource = "/".join(filter(None, (thing["resource"], thing.get("subresource"))))
    return Right(
        thing.get("namespace", ""), thing.get("apiGroup", ""), resource, entry["verb"], thing.get("name", "")
    )


@pytest.fixture(scope="module")
def entries(builder: Builder) -> Iterator[list[Json]]:
    """What the audit log holds of an operator that has seeded, repaired, published and reaped."""
    with staged(builder) as stage:
        stage.plane.start_scheduler()
        if builder.kubernetes.pins_addresses:
            apply_file(stage.plane.admin, ROOT / "deploy/overlays/pinned-addresses/pinning.yaml")
        living = stage.alive(*HOSTS)
        dead = stage.dead("oak")
        stage.plane.admin.create(NODES, virtual_node("ash", "vk-native", now=datetime.now(UTC)))  # noqa: TID251
        # As in a new cluster, where nobody has led yet.
        stage.world.delete("/apis/coordination.k8s.io/v1/namespaces/clusterconform-system/leases/clusterconform")
        with operator(stage.account, "--bound", "enforce") as running:
            stage.settings()
            everything_happens(stage, running, living[0], dead)
            stage.world.until(lambda: running.metric("clusterconform_reaped_nodes_total") == 1, "it is counted")
        yield stage.world.requests()


def everything_happens(stage: Stage, running: OperatorProcess, alive: str, dead: str) -> None:
    """Let it put a mark back, publish an endpoint, probe, try a kubelet, and reap."""
    world = stage.world
    world.until_condition("ash-vk-native", "True", "Conforms")
    world.label("ash-vk-native", runtime="agent")
    world.until(lambda: world.labels("ash-vk-native")["runtime"] == "virtual", "the mark is put back")
    world.until(lambda: "ExternalIP" in address_types(stage, alive), "an endpoint is published")
    tried = "clusterconform_streaming_trials_total"
    world.until(lambda: running.metric(tried) > 0, "the way to a kubelet is tried", seconds=60)
    for settings, what, seen in (
        ({"runtimeProbe": {"image": "example.com/other:1"}}, "the probe has another image", probe_image),
        ({"runtimeProbe": {"mode": "Off"}}, "the probe is gone", probe_is_gone),
        ({"addressReconcile": {"mode": "Pinned"}}, "the policy is looked for", policy_is_looked_for),
    ):
        stage.plane.admin.patch(f"{PROFILES}/k3s", {"spec": settings})
        world.until(lambda seen=seen: seen(stage), what, seconds=60)  # type: ignore[misc]
    world.until(lambda: world.gone(f"{NODES}/{dead}"), "the dead one is reaped", seconds=150)
    world.until(lambda: stage.events("Reaped") == [dead], "an Event tells of it")


def address_types(stage: Stage, name: str) -> set[str]:
    """The types of the addresses of a node."""
    return {address["type"] for address in stage.world.node(name)["status"].get("addresses") or []}


def probe_image(stage: Stage) -> bool:
    """Whether the probe has the image that the profile names now."""
    return not probe_is_gone(stage) and "example.com/other:1" in str(stage.plane.admin.get(PROBE))


def probe_is_gone(stage: Stage) -> bool:
    """Whether there is no probe."""
    return stage.world.gone(PROBE)


def policy_is_looked_for(stage: Stage) -> bool:
    """Whether it was asked for the policy of mode Pinned and, where the cluster has such, for what binds it."""
    made = {entry["objectRef"]["resource"] for entry in stage.world.requests() if "objectRef" in entry}
    bindings = {BINDINGS} if stage.plane.builder.kubernetes.pins_addresses else set()
    return {"mutatingadmissionpolicies"} | bindings <= made


@pytest.mark.timeout(400)
def test_no_right_is_missing(entries: list[Json]) -> None:
    refused = [
        str(asked(entry))
        for entry in entries
        if "objectRef" in entry and entry["annotations"].get("authorization.k8s.io/decision") != "allow"
    ]
    assert refused == []


@pytest.mark.timeout(400)
def test_every_request_is_covered_by_a_rule_of_ours(entries: list[Json]) -> None:
    rights = list(granted())
    elsewhere = {
        str(asked(entry))
        for entry in entries
        if "objectRef" in entry and not any(right.covers(asked(entry)) for right in rights)
    }
    assert elsewhere == set()


@pytest.mark.timeout(400)
def test_what_is_asked_beside_is_what_everybody_may_ask(entries: list[Json]) -> None:
    others = [entry for entry in entries if "objectRef" not in entry]
    for entry in others:
        assert entry["verb"] == "get"
        assert entry["annotations"]["authorization.k8s.io/reason"].startswith(DISCOVERY)


@pytest.mark.timeout(400)
def test_no_right_is_unused(entries: list[Json], builder: Builder) -> None:
    """But for one before Kubernetes 1.36: nobody asks what binds a policy that cannot be there."""
    made = {asked(entry) for entry in entries if "objectRef" in entry}
    unused = [str(right) for right in granted() if not any(right.covers(one) for one in made)]
    idle = [] if builder.kubernetes.pins_addresses else [BINDINGS]
    assert unused == [str(right) for right in granted() if right.resource in idle]


@pytest.mark.timeout(400)
def test_neither_a_secret_nor_the_way_through_a_node_is_ever_asked_for(entries: list[Json]) -> None:
    made = {asked(entry) for entry in entries if "objectRef" in entry}
    assert made
    assert not [one for one in made if one.resource == "secrets" or one.resource.endswith("/proxy")]
