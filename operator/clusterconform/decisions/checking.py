"""The gate: what is wrong with these objects, before any API server has seen them.

Profiles are judged by R1-R5 and the rules of the CRD, nodes by the operator's own verdict, workloads by the
rules of ``decisions.workloads``; other kinds are passed over. Nothing is judged twice: each verdict is that of
the code that the operator runs.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from clusterconform.contract.facts import UnreadableNodeError, read_node, view_node
from clusterconform.contract.matrix import MATRIX
from clusterconform.contract.memory import EMPTY
from clusterconform.contract.names import (
    API_VERSION,
    BACKEND_LABEL,
    GROUP,
    HOST_LABEL,
    KIND,
    RUNTIME_LABEL,
)
from clusterconform.contract.objects import Path, read_path
from clusterconform.contract.profile import (
    ProfileObject,
    Refusal,
    RuntimeProfile,
    manifest_of,
    read_profile,
    unknown_fields,
)
from clusterconform.contract.times import Moment
from clusterconform.contract.verdicts import ADVICE, Catalogue, Reason
from clusterconform.contract.workload import POD_SPECS, UnreadableWorkloadError, view_pod_spec
from clusterconform.decisions.gate import accept, judge_profile, judge_set
from clusterconform.decisions.planning import decide
from clusterconform.decisions.workloads import judge_pod

SCHEMA_RULE: Final = "CRD"
"""Rule of what the CRD's schema refuses: a wrong type, a value out of bounds, a field that is required."""

NODE_RULE: Final = "Node"
"""Rule of a Node that no API server would take."""

POD_RULE: Final = "Pod"
"""Rule of a workload that no API server would take."""

FIELDS: Final[Mapping[Reason, Path]] = {
    Reason.RUNTIME_LABEL_DRIFTED: ("metadata", "labels", RUNTIME_LABEL),
    Reason.BACKEND_LABEL_MISSING: ("metadata", "labels", BACKEND_LABEL),
    Reason.UNIDENTIFIED: ("metadata", "labels", BACKEND_LABEL),
    Reason.UNKNOWN_BACKEND: ("metadata", "labels", BACKEND_LABEL),
    Reason.PROFILE_NOT_ACCEPTED: ("metadata", "labels", BACKEND_LABEL),
    Reason.IDENTITY_CONFLICT: ("metadata", "labels", BACKEND_LABEL),
    Reason.HOST_LABEL_MISSING: ("metadata", "labels", HOST_LABEL),
    Reason.HOST_UNKNOWN: ("metadata", "labels", HOST_LABEL),
    Reason.HOST_NAME_MISMATCH: ("metadata", "name"),
    Reason.NAME_SUFFIX_MISMATCH: ("metadata", "name"),
    Reason.PROVIDER_TAINT_DRIFTED: ("spec", "taints"),
    Reason.MARK_UNWANTED: ("spec", "taints"),
    Reason.KUBELET_ENDPOINT_ADVERTISED: ("status", "daemonEndpoints", "kubeletEndpoint", "Port"),
}
"""By reason of a node's verdict, the field that it is about."""


class Severity(StrEnum):
    """How much a complaint matters."""

    UNUSABLE = "unusable"
    """It could not be judged at all."""

    ERROR = "error"
    """It does not conform."""

    WARNING = "warning"
    """Advice: nothing is refused for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One object that is judged.

    Attributes:
        document: Number of the document that it stands in, from 0.
        path: Where it stands in the document.
        manifest: The object as JSON values.
    """

    document: int
    path: Path
    manifest: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """Its kind; empty where it has none."""
        return str(self.manifest.get("kind") or "")

    @property
    def group(self) -> str:
        """The group of its apiVersion; empty for the core one."""
        return str(self.manifest.get("apiVersion") or "").rpartition("/")[0]

    @property
    def name(self) -> str:
        """metadata.name; empty where it has none."""
        metadata = self.manifest.get("metadata")
        return str(metadata.get("name") or "") if isinstance(metadata, Mapping) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """One thing that is wrong with one object.

    Attributes:
        subject: The object.
        rule: Which rule says so: R1 to R5, W1, W2, ``CRD``, ``Node``, ``Pod``, or a reason of a node's verdict.
        path: The field, below the object.
        message: What is wrong, for a person.
        severity: How much it matters.
    """

    subject: Subject
    rule: str
    path: Path
    message: str
    severity: Severity = Severity.ERROR


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What was judged, and what is wrong with it.

    Attributes:
        complaints: In the order of the objects.
        judged: The objects that were judged, by ``profiles``, ``nodes`` and ``workloads``.
    """

    complaints: tuple[Complaint, ...]
    judged: Mapping[str, Sequence[Subject]]


def check(subjects: Sequence[Subject], now: Moment, *, complete: bool = False) -> Checked:
    """What is wrong with ``subjects``.

    Args:
        subjects: What is to be judged.
        now: When; a verdict on a node takes a time, although none of these depends on it.
        complete: Whether the profiles among them are all that there are, so that R5 holds for the set.
    """
    profiles = [subject for subject in subjects if subject.kind == KIND and subject.group == GROUP]
    nodes = [subject for subject in subjects if subject.kind == "Node" and not subject.group]
    workloads = [subject for subject in subjects if (subject.group, subject.kind) in POD_SPECS]
    read, complaints = _read_profiles(profiles)
    catalogue = accept(list(read.values()) or [read_profile(manifest_of(row)) for row in MATRIX.values()])
    complaints += _judge_profiles(profiles, read, catalogue)
    if complete and profiles:
        complaints += _judge_the_set(profiles[0], catalogue)
    for node in nodes:
        complaints += _judge_node(node, catalogue, now)
    for workload in workloads:
        complaints += _judge_workload(workload, catalogue)
    order = {id(subject): number for number, subject in enumerate(subjects)}
    complaints.sort(key=lambda complaint: order[id(complaint.subject)])
    return Checked(
        complaints=tuple(complaints),
        judged={"profiles": profiles, "nodes": nodes, "workloads": workloads},
    )


def _read_profiles(profiles: Iterable[Subject]) -> tuple[dict[str, ProfileObject], list[Complaint]]:
    read: dict[str, ProfileObject] = {}
    complaints: list[Complaint] = []
    for subject in profiles:
        version = subject.manifest.get("apiVersion")
        if version != API_VERSION:
            message = f"{version} is not served; write {API_VERSION}"
            complaints.append(Complaint(subject=subject, rule=SCHEMA_RULE, path=("apiVersion",), message=message))
        try:
            seen = read_profile(subject.manifest)
        except Refusal as refusal:
            path = read_path(refusal.path)
            complaints.append(Complaint(subject=subject, rule=SCHEMA_RULE, path=path, message=refusal.reason))
            continue
        if seen.name in read:
            message = f"RuntimeProfile {seen.name} stands here twice; the last one counts"
            complaints.append(_warning(subject, "R1", ("metadata", "name"), message))
        read[seen.name] = seen
    return read, complaints


def _judge_profiles(
    profiles: Iterable[Subject], read: Mapping[str, ProfileObject], catalogue: Catalogue
) -> list[Complaint]:
    complaints: list[Complaint] = []
    for subject in profiles:
        seen = read.get(subject.name)
        if seen is None:
            continue
        contract = read_profile(subject.manifest).contract
        complaints += _judge_contract(subject, contract)
        for path in unknown_fields(subject.manifest):
            message = "no such field; kubectl refuses it, and the API server drops it"
            complaints.append(
                Complaint(subject=subject, rule=SCHEMA_RULE, path=path, message=message, severity=Severity.WARNING)
            )
        refusal = catalogue.refusals.get(subject.name)
        if refusal is not None and refusal.reason is Reason.ANOTHER_AGENT_PROFILE:
            message = refusal.message
            complaints.append(Complaint(subject=subject, rule="R5", path=("spec", "class"), message=message))
    return complaints


def _warning(subject: Subject, rule: str, path: Path, message: str) -> Complaint:
    return Complaint(subject=subject, rule=rule, path=path, message=message, severity=Severity.WARNING)


def _judge_contract(subject: Subject, contract: RuntimeProfile | Refusal) -> Iterator[Complaint]:
    if isinstance(contract, Refusal):
        rule = "R1" if contract.reason.startswith("metadata.name must equal") else SCHEMA_RULE
        path = read_path(contract.path)
        yield Complaint(subject=subject, rule=rule, path=path, message=contract.reason)
        return
    for breach in judge_profile(contract):
        path = read_path(breach.path)
        yield Complaint(subject=subject, rule=breach.rule, path=path, message=breach.message)


def _judge_the_set(first: Subject, catalogue: Catalogue) -> Iterator[Complaint]:
    """R5 of the whole set; two profiles of class agent are told beside the younger one already."""
    for breach in judge_set(catalogue.accepted.values()):
        yield Complaint(subject=first, rule=breach.rule, path=("spec", breach.path), message=breach.message)


def _judge_node(subject: Subject, catalogue: Catalogue, now: Moment) -> Iterator[Complaint]:
    if not subject.name:
        yield Complaint(subject=subject, rule=NODE_RULE, path=("metadata", "name"), message="must be a name")
        return
    try:
        node = read_node(view_node(subject.manifest))
    except UnreadableNodeError as error:
        yield _of_a_wrong_type(subject, NODE_RULE, (), error)
        return
    for finding in decide(node, catalogue, EMPTY, now).verdict.findings:
        yield Complaint(
            subject=subject,
            rule=finding.reason.value,
            path=FIELDS.get(finding.reason, ("metadata",)),
            message=finding.message,
            severity=Severity.WARNING if finding.reason in ADVICE else Severity.ERROR,
        )


def _judge_workload(subject: Subject, catalogue: Catalogue) -> Iterator[Complaint]:
    place = POD_SPECS[subject.group, subject.kind]
    try:
        spec = view_pod_spec(subject.manifest, place)
    except UnreadableWorkloadError as error:
        yield _of_a_wrong_type(subject, POD_RULE, place, error)
        return
    for breach in judge_pod(spec, list(catalogue.accepted.values())) if spec is not None else ():
        path = (*place, *breach.path)
        yield Complaint(subject=subject, rule=breach.rule, path=path, message=breach.message)


def _of_a_wrong_type(subject: Subject, rule: str, place: Path, error: Exception) -> Complaint:
    reason, _, path = str(error).partition(" - at `$")
    return Complaint(subject=subject, rule=rule, path=(*place, *read_path(path.rstrip("`"))), message=reason)
