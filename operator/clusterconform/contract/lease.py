"""The Lease that says who leads, as a value: its times, what we read of it, what we write into it.

Whatever stands in a Lease is read without complaint; what is unreadable counts as unknown, and an unknown
holder is waited for like a known one.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from clusterconform.contract.names import HEARD_ANNOTATION, NAMESPACE, RESYNCED_ANNOTATION
from clusterconform.contract.request import JSON, Json, Request
from clusterconform.contract.times import parse_time

LEASE: Final = "clusterconform"
LEASES_PATH: Final = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
LEASE_PATH: Final = f"{LEASES_PATH}/{LEASE}"

# No replica of ours holds a Lease for longer, so a longer time is rubbish and must not keep us out for years.
LONGEST_SECONDS: Final = 300.0
_LONGEST_REQUEST: Final = 3.0

# What a holder tells of itself beside its name (``LeaseRecord.told``), and how often there is news of it: it lists
# everything this often, and a stream that is silent for longer than two bookmarks proves nothing any more.
_TOLD: Final = frozenset({RESYNCED_ANNOTATION, HEARD_ANNOTATION})
RESYNC_SECONDS: Final = 600.0
HEARING_SECONDS: Final = 130.0
_INT32_MAX: Final = 2**31 - 1


class UnreadableLeaseError(ValueError):
    """The answer is no stored object at all: it has no uid or no resource version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTimings:
    """How long leadership lasts; the same for all replicas.

    The defaults are those of the Kubernetes components (node-facts §10).

    Attributes:
        duration: A Lease that did not change for so long is free; seconds.
        deadline: A leader that did not renew for so long has lost; seconds.
        retry: Between two looks of a standby, or two renewals of the leader; seconds.
    """

    duration: float = 15.0
    deadline: float = 10.0
    retry: float = 2.0

    def __post_init__(self) -> None:
        """Refuse times that cannot work.

        Raises:
            ValueError: A leader would lose before it could renew, or another would lead before it has lost.
        """
        if not 0 < 1.2 * self.retry < self.deadline < self.duration <= LONGEST_SECONDS:
            raise ValueError(
                f"the times of the lease must be 1.2 x retry < deadline < duration <= {LONGEST_SECONDS:g} s, "
                f"not retry {self.retry:g} s, deadline {self.deadline:g} s, duration {self.duration:g} s"
            )

    @property
    def request(self) -> float:
        """Seconds for one request about the Lease: after one without an answer there is time for more."""
        return min(_LONGEST_REQUEST, (self.deadline - self.retry) / 2)

    @property
    def longest_write(self) -> float:
        """Seconds that a write may take without being fenced off as soon as one renewal gets no answer."""
        return self.deadline - self.retry - self.request


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One leadership.

    Two terms are the same iff all three are. The number only grows while the Lease lives, and a Lease that was
    deleted begins anew: compare for equality, not for order.

    Attributes:
        number: The Lease's leaseTransitions.
        holder: Identity of the leader; no two processes have the same.
        uid: Of the Lease.
    """

    number: int
    holder: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRecord:
    """The Lease as it was read.

    Attributes:
        raw: All of it: what we do not know goes back as it came.
        uid: Of the object.
        version: Its resourceVersion.
        holder: Who holds it; empty when it was released, None where nobody is named.
        renewed: renewTime as it stands there, empty without one; compared, never understood.
        seconds: For how long the holder holds it; 0 where that is unknown.
        transitions: How often the holder changed; 0 where that is unknown.
    """

    raw: Mapping[str, Any]
    uid: str
    version: str
    holder: str | None
    renewed: str
    seconds: int
    transitions: int

    @property
    def state(self) -> tuple[str, str, str | None, str]:
        """What does not change unless somebody writes."""
        return self.uid, self.version, self.holder, self.renewed

    def number_for(self, holder: str) -> int:
        """The number of ``holder``'s term, which begins with the next write unless it began before."""
        return self.transitions if holder == self.holder else self.transitions % _INT32_MAX + 1

    def told(self, annotation: str) -> datetime | None:
        """The time that the holder wrote into ``annotation``; None for none, rubbish, or an earlier holder's."""
        spec, annotations = self.raw.get("spec"), self.raw["metadata"].get("annotations")
        at = parse_time(annotations.get(annotation) if isinstance(annotations, Mapping) else None)
        began = parse_time(spec.get("acquireTime") if isinstance(spec, Mapping) else None)
        return at if at is None or began is None or at >= began else None

    def held(
        self,
        holder: str,
        *,
        number: int,
        duration: float,
        now: datetime,
        told: Mapping[str, datetime] | None = None,
    ) -> Request:
        """The write after which ``holder`` holds the Lease, if this record still stands.

        Args:
            holder: Its identity.
            number: Of its term.
            duration: For how long it holds the Lease; seconds.
            now: Its wall clock.
            told: By annotation, what it tells of itself; what it does not tell, but an earlier holder did, goes.
        """
        stamp = self._stamp(now)
        began = {} if holder == self.holder else {"acquireTime": stamp}
        return self._swap(
            {
                **began,
                "holderIdentity": holder,
                "leaseDurationSeconds": math.ceil(duration),
                "leaseTransitions": number,
                "renewTime": stamp,
            },
            self._metadata(told or {}),
        )

    def released(self, now: datetime) -> Request:
        """The write after which nobody holds the Lease, if this record still stands."""
        return self._swap({"holderIdentity": "", "renewTime": self._stamp(now)}, self.raw["metadata"])

    def _stamp(self, now: datetime) -> str:
        # A write that changes nothing leaves the resource version as it is: others would not see that we are
        # alive. So a wall clock that stands still is helped along.
        stamp = _micro_time(now)
        return stamp if stamp != self.renewed else _micro_time(now + timedelta(microseconds=1))

    def _metadata(self, told: Mapping[str, datetime]) -> Mapping[str, Json]:
        metadata = dict(self.raw["metadata"])
        found = metadata.pop("annotations", None)
        others = (
            {key: text for key, text in found.items() if key not in _TOLD} if isinstance(found, Mapping) else {}
        )
        annotations = others | {name: _micro_time(at) for name, at in told.items()}
        return {**metadata, "annotations": annotations} if annotations else metadata

    def _swap(self, changes: Mapping[str, Json], metadata: Mapping[str, Json]) -> Request:
        # The resource version alone would not do: a PUT to a Lease that was deleted creates it anew unless the
        # uid forbids it.
        spec = self.raw.get("spec")
        spec = {**(spec if isinstance(spec, Mapping) else {}), **changes}
        body = {**self.raw, "metadata": metadata, "spec": spec}
        return Request(method="PUT", path=LEASE_PATH, content_type=JSON, body=body)


def read_lease(raw: object) -> LeaseRecord:
    """``raw`` as a record.

    Raises:
        UnreadableLeaseError: It is no stored object.
    """
    metadata = raw.get("metadata") if isinstance(raw, Mapping) else None
    if not isinstance(raw, Mapping) or not isinstance(metadata, Mapping):
        raise UnreadableLeaseError("the answer is no Lease")
    uid, version = metadata.get("uid"), metadata.get("resourceVersion")
    if not (isinstance(uid, str) and uid and isinstance(version, str) and version):
        raise UnreadableLeaseError("the answer is a Lease without uid or resourceVersion")
    found = raw.get("spec")
    spec: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
    holder, renewed = spec.get("holderIdentity"), spec.get("renewTime")
    seconds = _number(spec.get("leaseDurationSeconds"))
    return LeaseRecord(
        raw=raw,
        uid=uid,
        version=version,
        holder=holder if isinstance(holder, str) else None,
        renewed=renewed if isinstance(renewed, str) else "",
        seconds=seconds if seconds <= LONGEST_SECONDS else 0,
        transitions=_number(spec.get("leaseTransitions")),
    )


def unheld() -> Request:
    """The creation of a Lease that names nobody."""
    metadata = {"name": LEASE, "namespace": NAMESPACE, "labels": {"app.kubernetes.io/name": LEASE}}
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
    return Request(method="POST", path=LEASES_PATH, content_type=JSON, body=body)


def _number(value: object) -> int:
    valid = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _INT32_MAX
    return int(value) if valid and isinstance(value, int) else 0


def _micro_time(at: datetime) -> str:
    """``at`` as a metav1.MicroTime, which must have its six digits (contract.times writes none)."""
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
