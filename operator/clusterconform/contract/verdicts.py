"""The shape in which decisions answer, and the closed vocabulary of reasons."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from clusterconform.contract.profile import RuntimeProfile


class IdentityKind(StrEnum):
    """Whose node it is, as ``simulate`` prints it."""

    MANAGED = "managed"
    CONFLICTING = "conflicting"
    UNIDENTIFIED = "unidentified"
    UNKNOWN_BACKEND = "unknown-backend"


class Evidence(StrEnum):
    """Where a node says what it is, apart from our labels (design: node-facts §3 and §4)."""

    NODE_ARGS = "k3s.io/node-args begins with agent"
    PROVIDER_ID = "provider ID k3s://"
    KUBELET_VERSION = "kubelet version +k3s"
    TYPE_LABEL = "label type=virtual-kubelet"
    ANNOTATIONS = "virtual-kubelet's annotations"
    PROVIDER_TAINT = "provider taint"
    NAME_SUFFIX = "name ends with a virtual backend's suffix"


AGENT_EVIDENCE = frozenset({Evidence.NODE_ARGS, Evidence.PROVIDER_ID, Evidence.KUBELET_VERSION})


class Reason(StrEnum):
    """Why: the same word in conditions, Events, metrics, logs and docs (an agreement test compares them)."""

    CONFORMS = "Conforms"
    """The node carries what its profile wants."""

    RUNTIME_LABEL_DRIFTED = "RuntimeLabelDrifted"
    """The runtime label is absent or not the one of the backend."""

    BACKEND_LABEL_MISSING = "BackendLabelMissing"
    """The backend label is absent; condition or adoption and the evidence name the profile."""

    HOST_LABEL_MISSING = "HostLabelMissing"
    """The host label is absent and can be derived."""

    HOST_UNKNOWN = "HostUnknown"
    """The host label is absent and nothing tells what it should be."""

    PROVIDER_TAINT_DRIFTED = "ProviderTaintDrifted"
    """The provider taint is absent or has another value."""

    MARK_UNWANTED = "MarkUnwanted"
    """A mark that we wrote is no longer wanted by the profile."""

    KUBELET_ENDPOINT_ADVERTISED = "KubeletEndpointAdvertised"
    """A virtual node advertises a kubelet port, an API that it must not claim."""

    CONTESTED = "Contested"
    """Another writer put a key back three times within ten minutes; it is left alone for an hour."""

    WRITE_REJECTED = "WriteRejected"
    """The API server refused our write for good; it is not sent again until something changes."""

    HOST_NAME_MISMATCH = "HostNameMismatch"
    """Advice: an agent's name does not begin with its host label; it will never be reaped (contract D3)."""

    NAME_SUFFIX_MISMATCH = "NameSuffixMismatch"
    """Advice: a virtual node's name does not end with its backend's suffix."""

    IDENTITY_CONFLICT = "IdentityConflict"
    """The evidence contradicts the class of the claimed backend; nothing but the condition is written."""

    UNIDENTIFIED = "Unidentified"
    """No backend label, and no right to add one."""

    UNKNOWN_BACKEND = "UnknownBackend"
    """The backend label names no RuntimeProfile."""

    PROFILE_NOT_ACCEPTED = "ProfileNotAccepted"
    """The backend's RuntimeProfile is not accepted and acts on nothing."""

    NOT_ENFORCED = "NotEnforced"
    """No profile keeps this node to its contract any more."""

    ACCEPTED = "Accepted"
    """A profile that acts."""

    INVALID = "Invalid"
    """A profile that breaks its class's rules."""

    ANOTHER_AGENT_PROFILE = "AnotherAgentProfile"
    """A second profile of class agent; the older one acts."""

    EVIDENCE_INCOMPLETE = "EvidenceIncomplete"
    """No complete list of nodes and profiles yet, so nothing is concluded from what is absent."""

    NO_NODES = "NoNodes"
    """A profile without nodes."""

    NODES_NOT_CONFORMANT = "NodesNotConformant"
    """Some nodes of the profile do not conform."""

    WRITES_FAILING = "WritesFailing"
    """Some writes to nodes of the profile fail."""

    DRIFT_REPAIRED = "DriftRepaired"
    """Marks were put back (Events only)."""

    STALE = "Stale"
    """An agent that all witnesses say has been dead for longer than grace."""

    WITHIN_GRACE = "WithinGrace"
    """Not Ready, but not for long enough."""

    WITNESS_LIVES = "WitnessLives"
    """A Lease, or a stamp of the API server's own, says that the node lived within grace."""

    NODE_READY = "NodeReady"
    """The node is Ready."""

    NOT_AN_AGENT = "NotAnAgent"
    """Not labelled as an agent of the accepted agent profile; such a node is never reaped."""

    SELF_HOST = "SelfHost"
    """The control plane's own machine; never reaped."""

    CONTROL_PLANE = "ControlPlane"
    """A control-plane or master role; never reaped."""

    TERMINATING = "Terminating"
    """Its deletion is under way already."""

    KEPT = "Kept"
    """Annotated to be kept; never reaped."""

    OWN_NODE = "OwnNode"
    """The operator runs on it; never reaped."""

    NO_READY_CONDITION = "NoReadyCondition"
    """No Ready condition with a known status: unknown is not dead."""

    UNDATABLE = "Undatable"
    """When it stopped being Ready cannot be told."""

    LEASE_UNREADABLE = "LeaseUnreadable"
    """The Lease could not be read, so one witness is missing."""

    CLOCK_SKEW = "ClockSkew"
    """The wall clock jumped, or evidence lies in the future."""

    MASS_STALE = "MassStale"
    """Too large a share of the agents is stale: more likely an outage than so many deaths."""

    MIN_UPTIME = "MinUptime"
    """The operator has not been leading and synced for long enough."""

    LEDGER_UNREADABLE = "LedgerUnreadable"
    """The ledger could not be read or written."""

    LEDGER_FULL = "LedgerFull"
    """The ledger holds more than it may even after folding."""

    BUDGET_SPENT = "BudgetSpent"
    """The deletions of this window are made."""

    UNTRUSTED = "Untrusted"
    """Too little time has passed since the last doubt about clocks or the fleet."""

    DAILY_LIMIT = "DailyLimit"
    """The share of the fleet that may go in a day is gone."""

    ENDED_EARLY = "EndedEarly"
    """The reaping pass ended early; its error says why."""

    NOT_FENCED = "NotFenced"
    """The admission policy that fences the operator is not in force."""

    GUARDS_PASS = "GuardsPass"  # noqa: S105 - no password
    """No guard holds reaping: a stale agent would be deleted."""

    REAPED = "Reaped"
    """A stale agent's Node was deleted (Events and ledger only)."""

    NOT_LIVE = "NotLive"
    """Reaping is in dry run, off, or bounded to looking."""

    ENDPOINT_PUBLISHED = "EndpointPublished"
    """The node's address and kubelet port are those that both ends derive."""

    ENDPOINT_MISSING = "EndpointMissing"
    """Address or kubelet port is not the derived one yet."""

    PORT_COLLISION = "PortCollision"
    """An older node has the same derived kubelet port; this one is withheld, or a dial would reach the other."""

    GHOST = "Ghost"
    """Not Ready, and a younger Ready node of the same base exists; it gives its endpoint up."""

    ADDRESSES_EXHAUSTED = "AddressesExhausted"
    """No loopback address is left."""

    ADDRESS_CONTESTED = "AddressContested"
    """Another writer takes the address away more often than it may be put back (12 times a minute)."""

    REAL_EXTERNAL_IP = "RealExternalIP"
    """The node has an ExternalIP that is not ours: kept, and reported."""

    ENDPOINTS_NOT_PUBLISHED = "EndpointsNotPublished"
    """Some agents lack their address, or are withheld."""

    PINNING_POLICY_MISSING = "PinningPolicyMissing"
    """Mode Pinned, but its admission policy or binding is not there: addresses are kept as in mode Status."""

    VIRTUAL_NODE = "VirtualNode"
    """A virtual node: it has no kubelet to probe or to dial."""

    SWITCHED_OFF = "SwitchedOff"
    """The profile's mode is Off."""

    RUNTIME_READY = "RuntimeReady"
    """The probe pod is Ready: the container runtime starts sandboxes."""

    RUNTIME_UNAVAILABLE = "RuntimeUnavailable"
    """The probe pod has not been Ready for longer than grace."""

    RUNTIMES_UNAVAILABLE = "RuntimesUnavailable"
    """Some agents have a broken container runtime by their probe."""

    MASS_UNAVAILABLE = "MassUnavailable"
    """Too large a share of the agents would be tainted by their probe; no further one is."""

    NO_PROBE = "NoProbe"
    """No probe pod on the node, so no verdict."""

    PROBE_TERMINATING = "ProbeTerminating"
    """The probe pod is being deleted, so no verdict."""

    PROBE_STARTING = "ProbeStarting"
    """The probe pod is not Ready, but not for long enough."""

    PROBE_UNDATABLE = "ProbeUndatable"
    """Since when the probe pod has not been Ready cannot be told."""

    PROBE_UNSCHEDULED = "ProbeUnscheduled"
    """The probe pod has not been scheduled, so no verdict."""

    NODE_NOT_READY = "NodeNotReady"
    """The node is not Ready, so what its probe pod shows may be old: no verdict."""

    NODE_UNSCHEDULABLE = "NodeUnschedulable"
    """The node is cordoned, so a probe pod that is not Ready says nothing about its runtime."""

    IMAGE_PULL_FAILING = "ImagePullFailing"
    """The probe's image cannot be pulled, which says nothing about the runtime."""

    PROBE_NOT_KEPT = "ProbeNotKept"
    """The probe's DaemonSet could not be read or written."""

    STREAMING_VERIFIED = "StreamingVerified"
    """A log line was read through the API server: the whole path to the kubelet works."""

    STREAMING_NOT_VERIFIED = "StreamingNotVerified"
    """On some agents the path to the kubelet does not work."""

    NOT_TRIED = "NotTried"
    """The path to the kubelet has not been tried yet."""

    NO_PREFERRED_ADDRESS = "NoPreferredAddress"
    """The API server knows no address of the node that it would dial."""

    CONNECTION_REFUSED = "ConnectionRefused"
    """Nobody listens at the node's endpoint: its tunnel is down."""

    BAD_GATEWAY = "BadGateway"
    """The tunnel's server has no session of the node (502)."""

    CERTIFICATE_REFUSED = "CertificateRefused"
    """The kubelet's certificate is not accepted for the published address."""

    TIMED_OUT = "TimedOut"
    """No answer from the node's endpoint in time."""

    LOGS_REFUSED = "LogsRefused"
    """The log could not be read for another reason; the message holds the API server's words."""


ADVICE = frozenset({Reason.HOST_NAME_MISMATCH, Reason.NAME_SUFFIX_MISMATCH})


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be.

    Attributes:
        reason: The word for it.
        message: One clause for a person; holds nothing that changes by itself, such as a time, since the
            text goes into a condition and every change of it would be a write.
    """

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Whose node it is.

    Attributes:
        kind: The answer.
        profile: The profile that the claim or the evidence names; None where none is named.
        evidence: What the node says about itself.
        finding: What is to be said about it; None for a managed node.
    """

    kind: IdentityKind
    profile: RuntimeProfile | None
    evidence: frozenset[Evidence]
    finding: Finding | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeVerdict:
    """Whether a node conforms, and why not.

    Attributes:
        identity: Whose node it is.
        findings: Everything that is not as it should be, advice included, in a fixed order.
        contested: Marks that another writer keeps putting back, sorted.
    """

    identity: Identity
    findings: tuple[Finding, ...]
    contested: tuple[str, ...] = ()

    @property
    def conformant(self) -> bool:
        """Whether nothing but advice was found; a node of no profile conforms to none."""
        return not any(finding.reason not in ADVICE for finding in self.findings)


@dataclass(frozen=True, kw_only=True)
class Catalogue:
    """All profiles of a cluster, judged.

    Attributes:
        profiles: By backend, those whose spec could be read, accepted or not.
        refusals: By name, why a profile is not accepted.
    """

    profiles: Mapping[str, RuntimeProfile]
    refusals: Mapping[str, Finding]

    @cached_property
    def accepted(self) -> Mapping[str, RuntimeProfile]:
        """By backend, the profiles that act."""
        return {name: profile for name, profile in self.profiles.items() if name not in self.refusals}
