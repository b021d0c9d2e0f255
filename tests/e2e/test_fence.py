"""What the API server refuses to our own ServiceAccount, whatever our code and its RBAC say.

A deliberately wrong client holds the account's token, and for these tests everything that RBAC can give on
nodes. The fence is deploy/base/admission.yaml as it is shipped, the requests are tests/data/fence/requests.yaml;
docs/fence.md tells what is measured here.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import pykube
import pytest
import requests
import yaml
from operators import NODES, ROOT

from clusterconform.contract.matrix import MATRIX
from clusterconform.contract.profile import manifest_of
from clusterconform.contract.request import APPLY_PATCH, JSON
from clusterconform.contract.times import Moment
from clusterconform.decisions.simulation import read_world, simulate
from clusterconform.sandbox.builder import Builder
from clusterconform.sandbox.control_plane import ControlPlane
from clusterconform.sandbox.kubelets import start_hollow_kubelet
from clusterconform.sandbox.nodes import agent_node, virtual_node
from clusterconform.sandbox.waiting import wait_until

Json = dict[str, Any]

TABLES: Final = ROOT / "tests" / "data" / "fence"
POLICIES: Final = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
DELETE, WRITE = "clusterconform-fence-delete", "clusterconform-fence-write"
NOW: Final = datetime.now(UTC)  # noqa: TID251 - the programs live in real time
MERGE_PATCH: Final = "application/merge-patch+json"
DRY_RUN: Final[Json] = {"dryRun": ["All"]}
GUARDED: Final = ("uid", "resourceVersion")
UNGUARDED: Final = "is only deleted with the uid and the resourceVersion that were judged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the tables; what each field means is told in requests.yaml."""

    case: str
    kind: str = ""
    but: Json = field(default_factory=dict)
    terminating: bool = False
    send: str = ""
    preconditions: tuple[str, ...] = GUARDED
    options: Json = field(default_factory=dict)
    change: Json = field(default_factory=dict)
    part: str = ""
    name: str = ""
    says: str | None = None


def table(file: str, part: str) -> list[Row]:
    return [msgspec.convert(row, Row) for row in yaml.safe_load((TABLES / file).read_text())[part]]


def named(row: Row) -> str:
    return row.case


DELETIONS: Final = table("requests.yaml", "deletions")
WRITES: Final = table("requests.yaml", "writes")
EXCESSES: Final = table("requests.yaml", "excesses")
DRIFTED: Final = table("drifted.yaml", "rows")


def merged(document: Any, change: Any) -> Any:
    """``document`` after the merge patch ``change``."""
    if not isinstance(change, Mapping):
        return change
    result = dict(document) if isinstance(document, Mapping) else {}
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def manifest(kind: str, base: str) -> Json:
    """A node of one of the kinds of the tables; its name is ``base``, a hyphen and more."""
    match kind:
        case "dead":
            return agent_node(base, now=NOW, silent_since=NOW - timedelta(days=3))
        case "agent":
            return agent_node(base, now=NOW)
        case "virtual":
            return virtual_node(base, "vk-podman", now=NOW)
        case "plain":
            status = {"addresses": [{"type": "Hostname", "address": "x"}]}
            return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"{base}-plain"}, "status": status}
    raise ValueError(kind)


def label(key: str, value: str | None = "x") -> Json:
    return {"metadata": {"labels": {key: value}}}


UNCLAIMED: Final = {"metadata": {"labels": {"outpost.dhnt.io/runtime": None, "outpost.dhnt.io/backend": None}}}


class Client:
    """Sends requests about nodes as somebody, without any opinion on the answers."""

    def __init__(self, kubeconfig: Path) -> None:
        self._api = pykube.HTTPClient(pykube.KubeConfig.from_file(str(kubeconfig)))
        self.close = self._api.session.close

    def send(self, method: str, path: str, body: Any = None, content_type: str = JSON) -> requests.Response:
        headers = {"Content-Type": content_type}
        answer = self._api.request(method, version="v1", url=f"nodes{path}", json=body, headers=headers)
        assert isinstance(answer, requests.Response)
        return answer

    def merge(self, name: str, change: Json, part: str = "") -> requests.Response:
        return self.send("PATCH", f"/{name}{part}", change, MERGE_PATCH)

    def delete(self, path: str, **options: Any) -> requests.Response:
        return self.send("DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", **options})


def guard(node: Json, fields: Sequence[str] = GUARDED) -> Json:
    return {"preconditions": {name: node["metadata"][name] for name in fields}} if fields else {}


def deletion(client: Client, node: Json, row: Row) -> requests.Response:
    name = node["metadata"]["name"]
    options = {**guard(node, row.preconditions), **row.options}
    match row.send:
        case "collection":
            return client.delete(f"?fieldSelector=metadata.name={name}", **options)
        case "bare":
            return client.send("DELETE", f"/{name}")
    return client.delete(f"/{name}", **options)


def write(client: Client, node: Json, row: Row) -> requests.Response:
    name = row.name or node["metadata"]["name"]
    path = f"/{name}" + (row.part or ("/status" if "status" in row.change else ""))
    head = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    match row.send:
        case "post":
            return client.send("POST", "", merged(head, row.change))
        case "put":
            return client.send("PUT", path, merged(node, row.change))
        case "apply":
            query = "?fieldManager=wrong&force=true"
            return client.send("PATCH", path + query, merged(head, row.change), APPLY_PATCH)
    return client.send("PATCH", path, row.change, MERGE_PATCH)


def part_of_the_fence(document: Json) -> str:
    return f"{document['kind'].removeprefix('ValidatingAdmission')} {document['metadata']['name']}"


def documents(name: str) -> list[Json]:
    return list(yaml.safe_load_all((ROOT / "deploy" / "base" / name).read_text()))


RIGHTS: Final = "everything-on-nodes"
ACCOUNTS: Final = [
    ("clusterconform-system", "clusterconform"),
    ("clusterconform-system", "x"),
    ("default", "clusterconform"),
]


def rights() -> list[Json]:
    """Every right on nodes for our account, and for two that share one half of its name."""
    group = "rbac.authorization.k8s.io"
    head = {"apiVersion": f"{group}/v1", "metadata": {"name": RIGHTS}}
    rule = {"apiGroups": [""], "resources": ["nodes", "nodes/status"], "verbs": ["*"]}
    accounts = [{"name": name, "namespace": namespace} for namespace, name in ACCOUNTS]
    return [
        {**head, "kind": "ClusterRole", "rules": [rule]},
        {
            **head,
            "kind": "ClusterRoleBinding",
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": RIGHTS},
            "subjects": [{"kind": "ServiceAccount", **account} for account in accounts],
        },
        *({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account} for account in accounts[1:]),
    ]


class Fenced:
    """A control plane with our namespace and our rights, the wrong client, and the fence once it is built."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane, self.admin = plane, plane.admin
        self._api = pykube.HTTPClient(pykube.KubeConfig.from_file(str(plane.kubeconfig)))
        plane.at_end(self._api.session.close)
        for document in [*documents("namespace.yaml"), *documents("rbac.yaml"), *rights()]:
            self.create(document)
        self.wrong = self.client(self.plane.service_account_kubeconfig(*ACCOUNTS[0]))
        self.node("plain", "any")

    def client(self, kubeconfig: Path) -> Client:
        client = Client(kubeconfig)
        self.plane.at_end(client.close)
        return client

    def create(self, document: Json) -> None:
        pykube.object_factory(self._api, document["apiVersion"], document["kind"])(self._api, document).create()

    def remove(self, document: Json) -> None:
        pykube.object_factory(self._api, document["apiVersion"], document["kind"])(self._api, document).delete()

    def node(self, kind: str, base: str, but: Json | None = None) -> Json:
        wanted = merged(manifest(kind, base), but or {})
        path = f"{NODES}/{self.admin.create(NODES, wanted)['metadata']['name']}"
        # Every node is born with the taint not-ready, whatever its maker says.
        stored: Json = self.admin.patch(path, {"spec": {"taints": wanted.get("spec", {}).get("taints")}})
        return stored

    def shut(self, policy: str) -> bool:
        """Whether ``policy`` is in force: a dry run of what it refuses, on a node like any other."""
        if policy == DELETE:
            answer = self.wrong.delete("/any-plain", **DRY_RUN)
        else:
            answer = self.wrong.merge("any-plain", label("example.com/x"), "?dryRun=All")
        assert answer.status_code in {200, 403}, answer.text
        return answer.status_code == 403

    def until(self, policy: str, *, shut: bool) -> None:
        what = f"{policy} is {'in' if shut else 'out of'} force"
        wait_until(lambda: self.shut(policy) == shut, what=what, seconds=30)


@pytest.fixture(scope="module")
def fenced(builder: Builder) -> Iterator[Fenced]:
    """A control plane of this module's own, without controllers; the fence is in force."""
    with ControlPlane(builder, audit=True) as plane:
        fenced = Fenced(plane)
        assert not fenced.shut(DELETE)
        assert not fenced.shut(WRITE)
        for document in documents("admission.yaml"):
            fenced.create(document)
        for policy in (DELETE, WRITE):
            fenced.until(policy, shut=True)
        yield fenced


def refusal(policy: str, answer: requests.Response) -> str:
    """What the API server says for ``policy``; everything it says where something else refused."""
    assert answer.status_code == 403, answer.text
    status = answer.json()
    assert status["reason"] == "Forbidden"
    head = f"ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: "
    before, _, said = status["message"].partition(head)
    # What stands in brackets was a map, so it comes in any order.
    return re.sub(r"\((.*)\)", lambda found: f"({', '.join(sorted(found[1].split(', ')))})", said or before)


@pytest.mark.parametrize("row", DELETIONS, ids=named)
def test_what_may_be_deleted(fenced: Fenced, row: Row) -> None:
    node = fenced.node(row.kind or "dead", f"doomed{DELETIONS.index(row)}", row.but)
    path = f"{NODES}/{node['metadata']['name']}"
    if row.terminating:
        fenced.admin.delete(path)
        node = fenced.admin.get(path)
    answer = deletion(fenced.wrong, node, row)
    if row.says is None:
        assert answer.status_code == 200, answer.text
        assert not fenced.admin.answers(path)
    else:
        assert refusal(DELETE, answer) == f"node {node['metadata']['name']} {row.says}"
        assert fenced.admin.get(path) == node


@pytest.mark.parametrize("row", WRITES, ids=named)
def test_what_may_be_written(fenced: Fenced, row: Row) -> None:
    node = fenced.node(row.kind or "agent", f"row{WRITES.index(row)}", row.but)
    name = node["metadata"]["name"]
    answer = write(fenced.wrong, node, row)
    if row.says is None:
        assert answer.status_code == 200, answer.text
    else:
        assert refusal(WRITE, answer) == f"node {row.name or name} {row.says}"
        assert fenced.admin.get(f"{NODES}/{name}") == node


def test_no_way_round_leads_to_the_deletion_of_a_virtual_node(fenced: Fenced) -> None:
    """Every write of the table, one after another and twice over: what is let through does not add up."""
    for index, but in enumerate(({}, UNCLAIMED, merged(UNCLAIMED, label("type", None)))):
        silent = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
        name = fenced.node("virtual", f"detour{index}", merged(but, silent))["metadata"]["name"]
        for row in [*WRITES, *WRITES]:
            write(fenced.wrong, fenced.admin.get(f"{NODES}/{name}"), replace(row, name=name))
        claims = {"outpost.dhnt.io/runtime": "agent", "outpost.dhnt.io/backend": "k3s"}
        for key, value in claims.items():
            fenced.wrong.merge(name, label(key, value))
        node = fenced.admin.get(f"{NODES}/{name}")
        assert refusal(DELETE, fenced.wrong.delete(f"/{name}", **guard(node))).startswith(f"node {name} is ")


@pytest.mark.parametrize("kind", ["dead", "agent", "virtual", "plain"])
def test_the_self_test_needs_no_node_of_a_special_kind(fenced: Fenced, kind: str) -> None:
    """A dry-run deletion without the resourceVersion: of a node that may be reaped as of any other."""
    node = fenced.node(kind, f"self{kind}")
    name = node["metadata"]["name"]
    for fields in ((), ("uid",)):
        answer = fenced.wrong.delete(f"/{name}", **DRY_RUN, **guard(node, fields))
        assert refusal(DELETE, answer) == f"node {name} {UNGUARDED}"
    assert fenced.admin.get(f"{NODES}/{name}") == node


def test_stale_preconditions_and_absent_nodes_are_no_self_test(fenced: Fenced) -> None:
    """They are answered before the fence is asked, of whatever node."""
    for kind in ("dead", "virtual"):
        name = fenced.node(kind, "stale")["metadata"]["name"]
        uid = fenced.admin.get(f"{NODES}/{name}")["metadata"]["uid"]
        for wrong in ({"uid": "x"}, {"uid": uid, "resourceVersion": "1"}):
            assert fenced.wrong.delete(f"/{name}", preconditions=wrong, **DRY_RUN).status_code == 409
    assert fenced.wrong.delete("/nobody", **DRY_RUN).status_code == 404


def test_a_dry_run_has_to_stand_in_the_body(fenced: Fenced) -> None:
    """As soon as there is a body, the query says nothing."""
    node = fenced.node("dead", "query")
    name = node["metadata"]["name"]
    assert fenced.wrong.delete(f"/{name}", **DRY_RUN, **guard(node)).status_code == 200
    assert fenced.admin.answers(f"{NODES}/{name}")
    assert fenced.wrong.delete(f"/{name}?dryRun=All", **guard(node)).status_code == 200
    assert not fenced.admin.answers(f"{NODES}/{name}")


def test_a_missing_right_is_refused_in_other_words(fenced: Fenced) -> None:
    """403 alone does not prove that the fence is there: the answer has to name the policy."""
    nobody = fenced.client(fenced.plane.kubeconfig_for("nobody"))
    answer = nobody.delete("/any-plain", **DRY_RUN)
    assert answer.status_code == 403
    assert "ValidatingAdmissionPolicy" not in answer.json()["message"]


def test_a_collection_of_many_loses_none(fenced: Fenced) -> None:
    many = [fenced.node("dead", f"many{index}", label("set", "many")) for index in range(5)]
    answer = fenced.wrong.delete("?labelSelector=set=many")
    assert refusal(DELETE, answer).endswith("would be deleted with a collection; nodes are deleted one by one")
    assert [fenced.admin.get(f"{NODES}/{node['metadata']['name']}") for node in many] == many


@pytest.mark.parametrize("account", [None, *ACCOUNTS[1:]], ids=["an administrator", "our namespace", "our name"])
def test_everybody_else_goes_through(fenced: Fenced, account: tuple[str, str] | None) -> None:
    """Administrators, and accounts that share only the namespace or only the name."""
    plane, base = fenced.plane, "-".join(account or ("admin",))
    client = fenced.client(plane.service_account_kubeconfig(*account) if account else plane.kubeconfig)
    name = fenced.node("virtual", f"else-{base}")["metadata"]["name"]
    written = [write(client, fenced.admin.get(f"{NODES}/{name}"), replace(row, name=name)) for row in EXCESSES]
    assert [answer.status_code for answer in written] == [200] * len(EXCESSES)
    assert client.send("POST", "", manifest("virtual", f"made-{base}")).status_code == 201
    assert client.delete(f"/made-{base}-vk-podman").status_code == 200
    assert client.delete(f"?fieldSelector=metadata.name={name}").status_code == 200
    assert not fenced.admin.answers(f"{NODES}/{name}")


def test_a_kubelet_does_not_notice(fenced: Fenced) -> None:
    """It registers, becomes ready, and within 10 s puts back its own addresses where we added one."""
    name = "hollow-1"
    claim = {"runtime": "agent", "backend": "k3s", "host": "hollow"}
    labels = {f"outpost.dhnt.io/{key}": value for key, value in claim.items()}
    kubelet = start_hollow_kubelet(fenced.plane, name, labels=labels)

    def status() -> Json:
        found: Json = fenced.admin.get(f"{NODES}/{name}")["status"]
        return found

    def is_ready() -> bool:
        return any((one["type"], one["status"]) == ("Ready", "True") for one in status()["conditions"])

    wait_until(is_ready, what="the kubelet is ready", seconds=60, programs=[kubelet])
    own = status()["addresses"]
    added = {"status": {"addresses": [*own, {"type": "ExternalIP", "address": "127.0.9.9"}]}}
    answer = fenced.wrong.merge(name, added, "/status")
    assert answer.status_code == 200, answer.text
    what = "the kubelet has put its addresses back"
    wait_until(lambda: status()["addresses"] == own, what=what, seconds=60, programs=[kubelet])
    kubelet.kill()
    log = [json.loads(line) for line in fenced.plane.audit_lines()]
    own_writes = [
        entry["responseStatus"]["code"]
        for entry in log
        if entry["user"]["username"] == f"system:node:{name}"
        and entry["objectRef"]["resource"] == "nodes"
        and entry["verb"] in {"create", "update", "patch"}
    ]
    assert len(own_writes) >= 3
    assert set(own_writes) <= {200, 201}


def test_the_operator_itself_is_never_refused(fenced: Fenced) -> None:
    """Its requests for nodes that drifted in every way; afterwards it wants nothing more."""
    profiles = [manifest_of(profile) for profile in MATRIX.values()]
    for profile in profiles:
        profile["spec"]["adopt"] = "ByEvidence"
    nodes = [fenced.node(row.kind, f"drift{index}", row.but) for index, row in enumerate(DRIFTED)]
    paths = [f"{NODES}/{node['metadata']['name']}" for node in nodes]

    def wanted() -> dict[str, list[Json]]:
        stored = [{**fenced.admin.get(path), "apiVersion": "v1", "kind": "Node"} for path in paths]
        answer = simulate(read_world([*stored, *profiles]), Moment(wall=NOW, uptime=0))
        return {row.case: node["requests"] for row, node in zip(DRIFTED, answer["nodes"], strict=True)}

    asked = wanted()
    assert sum(map(len, asked.values())) >= 30
    for case, one in asked.items():
        for request in one:
            path, body = request["path"].removeprefix(NODES), request["body"]
            answer = fenced.wrong.send(request["method"], path, body, request["contentType"])
            assert answer.status_code == 200, (case, answer.text)
    assert [case for case, one in wanted().items() if one] == []


@pytest.mark.parametrize("document", documents("admission.yaml"), ids=part_of_the_fence)
def test_without_policy_or_binding_the_door_is_open(fenced: Fenced, document: Json) -> None:
    """About a second later, and nobody is told: hence the self-test."""
    policy = document["metadata"]["name"]
    fenced.remove(document)
    try:
        fenced.until(policy, shut=False)
    finally:
        fenced.create(document)
        fenced.until(policy, shut=True)


def test_the_api_server_finds_no_fault_with_the_types(fenced: Fenced) -> None:
    """Last, since the controllers that check this also put taints on nodes."""
    fenced.plane.start_controller_manager()

    def checked() -> list[Json]:
        return [fenced.admin.get(f"{POLICIES}/{policy}").get("status", {}) for policy in (DELETE, WRITE)]

    wait_until(lambda: all("typeChecking" in one for one in checked()), what="types are checked", seconds=60)
    assert [one["typeChecking"] for one in checked()] == [{}, {}]
