"""Do the nodes and what runs on them let the contract hold? The checks of ``doctor`` on the fleet itself."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from clusterconform.contract.diagnosis import ClusterFacts, State, Trouble
from clusterconform.contract.facts import READY
from clusterconform.contract.reported import condition_of, held_in
from clusterconform.contract.settings import AddressMode, NodeGC
from clusterconform.contract.times import Moment, parse_time
from clusterconform.contract.verdicts import ADVICE, Catalogue, Reason
from clusterconform.contract.witness import read_fresh_node
from clusterconform.contract.workload import UnreadableWorkloadError, view_pod_spec
from clusterconform.contract.writers import last_writer
from clusterconform.decisions.explanation import field_of, remembered
from clusterconform.decisions.gate import accept
from clusterconform.decisions.looking import Look, look_at
from clusterconform.decisions.rehearsal import agents_of
from clusterconform.decisions.sandbox import Runtime
from clusterconform.decisions.scope import acting_agent
from clusterconform.decisions.workloads import judge_pod, lands_on
from clusterconform.decisions.world import facts_of, name_of, read_world

# So many names of nodes in one sentence; explain --all shows the rest.
_NAMED: Final = 3
# The operator has been up for longer than any wait of a decision.
_LONG_AGO: Final = 1e9
_TEMPLATE: Final = ("spec", "template", "spec")
# A kubelet that leaves its addresses to a cloud controller keeps the first on its Node, and takes it off when it
# does not any more; the k3s agent writes the second at its start, and leaves it there for ever.
_PROVIDED_IP: Final = "alpha.kubernetes.io/provided-node-ip"
_K3S_INTERNAL_IP: Final = "k3s.io/internal-ip"
_ADDRESSES: Final = ("status", "addresses")
_SERVICE_LB: Final = "svccontroller.k3s.cattle.io/svcname"

_ADVICE: Final[Mapping[Reason, str]] = {
    Reason.IDENTITY_CONFLICT: "correct the label outpost.dhnt.io/backend, or find out who sets it",
    Reason.KUBELET_ENDPOINT_ADVERTISED: "let the provider of that virtual node advertise port 0",
    Reason.UNKNOWN_BACKEND: "apply a RuntimeProfile of that name, or correct the label outpost.dhnt.io/backend",
    Reason.UNIDENTIFIED: "label the node, or set adopt: ByEvidence on the profile that its evidence names",
    Reason.HOST_UNKNOWN: "set outpost.dhnt.io/host on the node, for a k3s agent best with --node-label",
}
_REPAIRED: Final = (
    "the operator puts it right unless it only observes; if it stays, see: clusterconform explain NODE"
)
_GUARDS: Final[Mapping[str, str]] = {
    Reason.MASS_STALE: "end the outage; one node may be approved all the same: clusterconform reap NODE",
    Reason.CLOCK_SKEW: "set the clocks of the nodes and of the operator's machine by NTP",
    Reason.UNTRUSTED: "wait: deletions begin again when nothing was doubtful for one grace",
    Reason.NOT_FENCED: "apply the admission policies: clusterconform manifests admission | kubectl apply -f -",
    Reason.LEDGER_FULL: "look at what fills the ledger: clusterconform ledger",
    Reason.LEDGER_UNREADABLE: "read the API server's words; often a right on ConfigMaps is missing",
    Reason.DAILY_LIMIT: "wait, or approve one node: clusterconform reap NODE",
}


_TUNNEL: Final = "nothing answers where its endpoint leads: start the tunnel of that worker again"
_PATHS: Final[Mapping[Reason, str]] = {
    Reason.NO_PREFERRED_ADDRESS: "no address is published for it; see: clusterconform explain NODE",
    Reason.CONNECTION_REFUSED: _TUNNEL,
    Reason.BAD_GATEWAY: _TUNNEL,
    Reason.TIMED_OUT: _TUNNEL,
    Reason.CERTIFICATE_REFUSED: "the kubelet's certificate does not cover the published address; rejoin the node",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The nodes of a cluster, looked at.

    Attributes:
        facts: All that was read.
        catalogue: The profiles, judged.
        looks: The nodes, judged.
    """

    facts: ClusterFacts
    catalogue: Catalogue
    looks: Sequence[Look]


def fleet_of(facts: ClusterFacts) -> Fleet:
    """The fleet in ``facts``.

    Raises:
        UnusableWorldError: A node or a pod with a field of a type that no API server would accept.
    """
    catalogue = accept(facts.profiles)
    world = replace(read_world([*facts.nodes, *facts.pods]), profiles=facts.profiles)
    nodes = [facts_of(name_of(manifest), manifest) for manifest in world.nodes]
    now = Moment(wall=facts.now, uptime=_LONG_AGO)
    looks = look_at(world, nodes, catalogue, now, lambda node: remembered(node, now))
    return Fleet(facts=facts, catalogue=catalogue, looks=looks)


def profiles(fleet: Fleet) -> Iterator[Trouble]:
    """Every profile is accepted."""
    for name, refusal in sorted(fleet.catalogue.refusals.items()):
        twin = refusal.reason is Reason.ANOTHER_AGENT_PROFILE
        yield Trouble(
            f"RuntimeProfile {name} is not accepted and acts on nothing: {refusal.message}",
            f"delete one of the two: kubectl delete rtp {name}"
            if twin
            else f"correct it: kubectl edit rtp {name}",
        )


def nodes(fleet: Fleet) -> Iterator[Trouble]:
    """Every node conforms; what is contested, or follows from a refused profile, is said elsewhere."""
    elsewhere = {*ADVICE, Reason.CONTESTED, Reason.PROFILE_NOT_ACCEPTED}
    found: dict[Reason, list[tuple[str, str]]] = {}
    for look in fleet.looks:
        for finding in look.decision.verdict.findings:
            if finding.reason not in elsewhere:
                found.setdefault(finding.reason, []).append((look.facts.name, finding.message))
    for reason, rows in found.items():
        mild = reason not in _ADVICE or reason is Reason.UNIDENTIFIED
        yield Trouble(
            f"{reason}: {_names(name for name, _ in rows)}: {rows[0][1]}",
            _ADVICE.get(reason, _REPAIRED),
            State.WARNING if mild else State.FAILING,
        )


def contested(fleet: Fleet) -> Iterator[Trouble]:
    """No other writer fights over a mark."""
    for look in fleet.looks:
        for finding in look.decision.verdict.findings:
            if finding.reason is Reason.CONTESTED:
                writer = last_writer(look.manifest, field_of(finding))
                by = f" (last by {writer.manager})" if writer else ""
                yield Trouble(
                    f"{look.facts.name}: {finding.message}{by}; the operator leaves it alone for an hour",
                    "find that writer and stop it: kubectl get node NAME -o yaml --show-managed-fields",
                )


def ports(fleet: Fleet) -> Iterator[Trouble]:
    """No two agents derive the same kubelet port."""
    for look in fleet.looks:
        address = look.decision.address
        if address.finding.reason is Reason.PORT_COLLISION:
            yield Trouble(
                f"{look.facts.name}: {address.finding.message}",
                "the port follows from the name of the host: give one of the two another, or widen portSlots "
                "in the profile and on every worker",
            )


def addresses(fleet: Fleet) -> Iterator[Trouble]:
    """Nobody else owns the list of addresses where the operator is to publish in it."""
    agent = acting_agent(fleet.catalogue)
    mode = agent.address_reconcile.mode if agent and agent.address_reconcile else AddressMode.OFF
    if mode is AddressMode.OFF:
        return
    if mode in {AddressMode.STATUS, AddressMode.PINNED}:
        yield from _fought(fleet, mode)
    yield from _balanced(fleet)


def _fought(fleet: Fleet, mode: AddressMode) -> Iterator[Trouble]:
    """A cloud controller that owns the list: what is to be published is not there, and the node shows why."""
    missing = [look for look in fleet.looks if look.decision.address.publish and not look.decision.address.patched]
    for annotation, who in (
        (_PROVIDED_IP, "a cloud controller owns"),
        (_K3S_INTERNAL_IP, "the cloud controller of k3s may own"),
    ):
        found = [look for look in missing if annotation in (look.manifest["metadata"].get("annotations") or {})]
        if found:
            yield Trouble(
                f"{who} the addresses of {_names(look.facts.name for look in found)} ({annotation} is set there), "
                f"and what mode {mode} publishes is not among them{_written_by(found)}",
                "start the k3s server with --disable-cloud-controller, or set addressReconcile.mode: Annotation",
                State.WARNING,
            )
            told = {look.facts.name for look in found}
            missing = [look for look in missing if look.facts.name not in told]


def _written_by(looks: Iterable[Look]) -> str:
    """Who wrote the addresses last, by the API server's record; empty where it does not tell."""
    writers = {writer.manager for look in looks if (writer := last_writer(look.manifest, _ADDRESSES)) is not None}
    return f"; they were written last by {_names(sorted(writers))}" if writers else ""


def _balanced(fleet: Fleet) -> Iterator[Trouble]:
    """A load balancer that takes the endpoints of kubelets for its own: seen, or to be expected."""
    advice = "start the k3s server with --disable=servicelb, or set addressReconcile.mode: 'Off'"
    verdicts = [look.decision.address for look in fleet.looks]
    ours = {verdict.endpoint.address for verdict in verdicts if verdict.endpoint is not None and verdict.publish}
    taken = [
        f"{seen['metadata'].get('namespace')}/{seen['metadata']['name']} ({address})"
        for seen in fleet.facts.services
        if (address := next((shown for shown in _ingress_of(seen) if shown in ours), None)) is not None
    ]
    if taken:
        yield Trouble(
            f"services are published at addresses that lead to a kubelet and nowhere else: {_names(taken)}", advice
        )
    running = [
        seen["metadata"]["name"]
        for seen in fleet.facts.daemon_sets
        if _SERVICE_LB in (seen["metadata"].get("labels") or {})
    ]
    if running and not taken:
        yield Trouble(
            f"ServiceLB of k3s runs ({_names(running)}): once a node of its pods has an ExternalIP it publishes "
            "only those, and ours lead nowhere but to a kubelet",
            advice,
            State.WARNING,
        )


def _ingress_of(service: Mapping[str, Any]) -> list[Any]:
    balancer = (service.get("status") or {}).get("loadBalancer") or {}
    return [entry.get("ip") for entry in balancer.get("ingress") or ()]


def daemon_sets(fleet: Fleet) -> Iterator[Trouble]:
    """No DaemonSet lands on virtual nodes by accident."""
    accepted = list(fleet.catalogue.accepted.values())
    for seen in fleet.facts.daemon_sets:
        name = f"{seen['metadata'].get('namespace')}/{seen['metadata']['name']}"
        try:
            spec = view_pod_spec(seen, _TEMPLATE)
        except UnreadableWorkloadError:
            continue  # the API server would not have taken it
        breaches = judge_pod(spec, accepted) if spec is not None else []
        if breaches:
            yield Trouble(f"DaemonSet {name} {breaches[0].message.partition(':')[0]}", _KEEP_OFF)
        elif spec is not None and lands_on(spec, accepted):
            message = f"DaemonSet {name} has a pod on every virtual node"
            yield Trouble(message, f"nothing, if that is meant; else {_KEEP_OFF}", State.WARNING)


_KEEP_OFF: Final = "keep it off them with a required node affinity: outpost.dhnt.io/runtime NotIn [virtual]"


def node_clocks(fleet: Fleet) -> Iterator[Trouble]:
    """Each kubelet's clock agrees with the API server's."""
    agents = agents_of(fleet.catalogue)
    tolerance = (agents.policy if agents else NodeGC()).future_tolerance
    for look in fleet.looks:
        apart = _apart(look, fleet.facts)
        if apart is not None and abs(apart) > timedelta(seconds=tolerance.seconds):
            way = "ahead of" if apart > timedelta() else "behind"
            yield Trouble(
                f"the clock of {look.facts.name} is {abs(apart).total_seconds():.0f} s {way} the API server's, "
                "and what it says of itself is dated by it",
                "set the clock of that machine by NTP",
            )


def _apart(look: Look, facts: ClusterFacts) -> timedelta | None:
    """How far the kubelet's clock runs ahead, from a time of its own beside the API server's stamp on it."""
    ready = look.facts.ready
    if ready is None:
        return None
    if ready.transition is not None and ready.transition > facts.now:
        return ready.transition - facts.now
    heartbeat = _heartbeat(look.manifest)
    stamp = read_fresh_node(look.manifest).ready_stamp
    # Once the node is missed, the control plane writes the condition and the stamp is no longer the kubelet's.
    if heartbeat is None or stamp is None or ready.status == "Unknown":
        return None
    return heartbeat - stamp


def _heartbeat(manifest: Mapping[str, Any]) -> datetime | None:
    status = manifest.get("status")
    conditions = status.get("conditions") if isinstance(status, Mapping) else None
    for seen in conditions if isinstance(conditions, list) else ():
        if isinstance(seen, Mapping) and seen.get("type") == READY:
            return parse_time(seen.get("lastHeartbeatTime"))
    return None


def runtimes(fleet: Fleet) -> Iterator[Trouble]:
    """Each agent's container runtime starts a sandbox."""
    for look in fleet.looks:
        probe = look.around.probe
        if probe is not None and probe.runtime is Runtime.UNAVAILABLE:
            held = "; not tainted, since too many would be" if probe.held else ""
            yield Trouble(
                f"the container runtime of {look.facts.name} does not run a pod: {probe.cause.message}{held}",
                f"look at the machine, and at: kubectl describe pod -n clusterconform-system {probe.pod}",
            )


def paths(fleet: Fleet) -> Iterator[Trouble]:
    """The API server reaches the kubelet of every agent whose probe runs."""
    for node, trial in fleet.facts.trials.items():
        if trial.reason is not Reason.STREAMING_VERIFIED:
            advice = _PATHS.get(trial.reason, "read the API server's words; look at the kubelet of that node")
            yield Trouble(f"no way to the kubelet of {node}: {trial.reason}: {trial.message}", advice)


def reaping(fleet: Fleet) -> Iterator[Trouble]:
    """No guard of the fleet holds what should go."""
    agents = agents_of(fleet.catalogue)
    for profile in fleet.facts.profiles:
        if agents is None or profile.name != agents.backend:
            continue
        seen = condition_of(profile.status, "ReapingAllowed")
        reason = str(seen.get("reason"))
        if seen.get("status") == "False" and reason in _GUARDS:
            held = [row.get("name") for row in held_in(profile.status)]
            names = f"; held: {_names(map(str, held))}" if held else ""
            yield Trouble(f"{reason}: {seen.get('message')}{names}", _GUARDS[reason], State.WARNING)


def _names(names: Iterable[str]) -> str:
    known = list(names)
    rest = f" and {len(known) - _NAMED} more" if len(known) > _NAMED else ""
    return ", ".join(known[:_NAMED]) + rest
