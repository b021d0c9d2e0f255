"""Is the operator installed, allowed, leading and awake? The checks of ``doctor`` on what surrounds it."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any, Final

from clusterconform.contract.diagnosis import Access, ClusterFacts, State, Trouble
from clusterconform.contract.lease import HEARING_SECONDS, RESYNC_SECONDS, LeaseRecord
from clusterconform.contract.names import HEARD_ANNOTATION, NAMESPACE, RESYNCED_ANNOTATION, SERVICE_ACCOUNT
from clusterconform.contract.reported import reaping_of
from clusterconform.contract.settings import AddressMode, NodeGC
from clusterconform.contract.times import parse_time
from clusterconform.decisions.gate import accept
from clusterconform.decisions.glance import leader_of
from clusterconform.decisions.rehearsal import agents_of
from clusterconform.decisions.scope import acting_agent

# A status that lags by less may just be being written (handlers.status).
_REPORT_SECONDS: Final = 60.0
_LARGE_DIFFERENCE: Final = 30.0
# How long it may be since a leader did what it tells of: listing everything may fail now and then.
_SILENT: Final[Mapping[str, tuple[float, str]]] = {
    HEARD_ANNOTATION: (HEARING_SECONDS, "heard nothing of nodes"),
    RESYNCED_ANNOTATION: (2 * RESYNC_SECONDS, "not listed all nodes and profiles"),
}


def crd(facts: ClusterFacts) -> Iterator[Trouble]:
    """The CRD is there, and as new as this program."""
    apply = "apply the one of this version: clusterconform manifests crd | kubectl apply -f -"
    if facts.crd_missing is None:
        yield Trouble("there is no CRD for RuntimeProfiles", apply)
    elif facts.crd_missing:
        yield Trouble(f"the CRD is older than this program: it lacks {', '.join(facts.crd_missing)}", apply)


def permissions(facts: ClusterFacts) -> Iterator[Trouble]:
    """The shipped ServiceAccount has every right that it needs."""
    if facts.denied:
        account = f"{NAMESPACE}/{SERVICE_ACCOUNT}"
        yield Trouble(
            f"the ServiceAccount {account} may not {'; '.join(map(str, facts.denied))}",
            "apply the shipped roles: clusterconform manifests rbac | kubectl apply -f -",
        )


def leader(facts: ClusterFacts) -> Iterator[Trouble]:
    """An operator leads."""
    found = leader_of(facts.lease, facts.now)
    start = "start it, or look at its pods: kubectl get pods -n clusterconform-system"
    if not found.holder:
        yield Trouble("no operator leads: nothing is repaired and nothing is reaped", start)
    elif not found.alive:
        silent = (facts.now - found.renewed).total_seconds() if found.renewed else 0.0
        yield Trouble(
            f"the leader {found.holder} has not renewed its Lease for {silent:.0f} s: it is stopped or cut off",
            "look at that process and its node; another replica takes over by itself where one runs",
        )


def stream(facts: ClusterFacts) -> Iterator[Trouble]:
    """The leader hears of changes: it says so itself, and what it wrote down is about the cluster as it is."""
    if facts.lease is None or not leader_of(facts.lease, facts.now).alive:
        return  # said by another check already
    advice = (
        "look at clusterconform_node_stream_age_seconds and /livez of the leader; restart it if it hears nothing"
    )
    for silence in _silences(facts.lease):
        yield Trouble(silence, advice)
    for profile in facts.profiles:
        seen = profile.status.get("observedGeneration", 0)
        if seen != profile.generation:
            which = f"RuntimeProfile {profile.name} (generation {profile.generation}, seen {seen})"
            yield Trouble(f"the leader has not seen the last edit of {which}", advice)
    agents = agents_of(accept(facts.profiles))
    status = next((seen.status for seen in facts.profiles if agents and seen.name == agents.backend), {})
    due = parse_time(reaping_of(status).get("nextPass"))
    if due is not None and facts.now - due > timedelta(seconds=_REPORT_SECONDS):
        late = (facts.now - due).total_seconds()
        yield Trouble(f"the reaping pass is {late:.0f} s overdue", advice)


def _silences(lease: LeaseRecord) -> Iterator[str]:
    """What the leader has not done for too long, by its own clock: all these times are of one write."""
    renewed = parse_time(lease.renewed)
    for annotation, (longest, words) in _SILENT.items():
        at = lease.told(annotation)
        silent = (renewed - at).total_seconds() if renewed and at else 0.0
        if silent > longest:
            yield f"the leader {lease.holder} tells that it has {words} for {silent:.0f} s"


def clock(facts: ClusterFacts) -> Iterator[Trouble]:
    """The API server and this machine agree on the time."""
    apart = (facts.local - facts.now).total_seconds()
    agents = agents_of(accept(facts.profiles))
    tolerance = (agents.policy if agents else NodeGC()).future_tolerance
    if abs(apart) > min(_LARGE_DIFFERENCE, tolerance.seconds or _LARGE_DIFFERENCE):
        way = "behind" if apart > 0 else "ahead of"
        state = State.FAILING if abs(apart) > tolerance.seconds else State.WARNING
        yield Trouble(
            f"the API server's clock is {abs(apart):.0f} s {way} this machine's",
            f"set both clocks by NTP; a difference above {tolerance.text} to the operator's machine stops reaping",
            state,
        )


def admission(facts: ClusterFacts) -> Iterator[Trouble]:
    """The shipped admission policies are in force."""
    missing = [f"{kind} {name}" for kind, name in facts.shipped_policies if (kind, name) not in facts.policies]
    if missing:
        yield Trouble(
            f"missing: {', '.join(missing)}; without its fence the operator deletes no node",
            "apply them: clusterconform manifests admission | kubectl apply -f -",
        )
    agent = acting_agent(accept(facts.profiles))
    pinned = agent and agent.address_reconcile and agent.address_reconcile.mode is AddressMode.PINNED
    unpinned = [f"{kind} {name}" for kind, name in facts.pinning_policies if (kind, name) not in facts.policies]
    if pinned and unpinned:
        yield Trouble(
            f"addressReconcile.mode is Pinned, but missing: {', '.join(unpinned)}; it works as Status until then",
            "apply them (Kubernetes 1.36 or newer): clusterconform manifests pinning | kubectl apply -f -",
            State.WARNING,
        )


def needed_access(manifests: Iterable[Any]) -> list[Access]:
    """Every right that the roles in ``manifests``, as they are shipped, grant."""
    found = []
    for manifest in manifests:
        if manifest.get("kind") not in {"ClusterRole", "Role"}:
            continue
        namespace = manifest["metadata"].get("namespace", "")
        for rule in manifest.get("rules") or ():
            found += [
                Access(verb, group, *_resource(resource), namespace=namespace, name=name)
                for group in rule.get("apiGroups") or ()
                for resource in rule.get("resources") or ()
                for verb in rule.get("verbs") or ()
                for name in rule.get("resourceNames") or ("",)
            ]
    return list(dict.fromkeys(found))


def _resource(text: str) -> tuple[str, str]:
    resource, _, subresource = text.partition("/")
    return resource, subresource


def review_of(access: Access) -> Mapping[str, Any]:
    """The SubjectAccessReview that asks whether the shipped account has ``access``."""
    attributes = {
        "verb": access.verb,
        "group": access.group,
        "resource": access.resource,
        "subresource": access.subresource,
        "namespace": access.namespace,
        "name": access.name,
    }
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{NAMESPACE}:{SERVICE_ACCOUNT}",
            "groups": ["system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated"],
            "resourceAttributes": {key: value for key, value in attributes.items() if value},
        },
    }
