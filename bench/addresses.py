"""Endpoints: a quarter of a fleet lacks its address; an agent joins; what publishing costs at rest.

The operator is at rest and stopped (SIGSTOP); 1,250 agents of 5,000 nodes lose their address and port; it goes on
and a watch tells when all show them again. Then they lose them once more, and the bare client sends the same
requests: the floor. The cost at rest is counted on one real kubelet, which puts its own list back.
"""

import asyncio
import contextlib
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

import msgspec
import yaml

from bench import fleet
from bench.client import Call, get, lines, open_session
from bench.options import Options
from bench.report import Figure, Series
from bench.scene import ROOT, Scene, scene
from bench.subjects import OURS, Running, running
from clusterconform.contract.facts import decode_node_list, read_node, view_node
from clusterconform.contract.memory import EMPTY
from clusterconform.contract.names import BACKEND_LABEL
from clusterconform.contract.times import Moment
from clusterconform.decisions.agents import Agents
from clusterconform.decisions.allocation import AddressBook
from clusterconform.decisions.planning import decide
from clusterconform.decisions.requests import endpoint_request
from clusterconform.sandbox.nodes import AGENT_BACKEND, agent_node

NAME: Final = "addresses"
_JOINS: Final = 20
_REST_SECONDS: Final = 60.0
_GOAL_RATIO: Final = 2.0
_GOAL_JOIN_MS: Final = 5.0
_GOAL_STORED: Final = 0.3
_KUBELET: Final = "bench-1a2b3c4d"
_STATUS: Final = "application/merge-patch+json"


def measure(options: Options) -> list[Figure]:
    """Measure publishing, joining, and the cost at rest."""
    series = Series(NAME)
    with scene(options.nodes, audit=True) as staged:
        names = [name for name in staged.right if staged.right[name] == "agent"][: options.nodes // 4]
        for run in range(options.runs):
            options.tell(f"run {run + 1} of {options.runs}: {len(names):,} agents without an address")
            _publish(series, staged, names)
        options.tell(f"{_JOINS} agents join, one by one")
        _join(series, staged)
    for count in (100, 500, 1250):
        series.add("node-0, node-1, …", f"withheld of {count:,} for a port collision", _withheld(count))
    with scene(4, audit=True) as staged:
        for mode in ("Status", "Pinned"):
            options.tell(f"a real kubelet at rest, mode {mode}")
            _rest(series, staged, mode)
    return series.figures()


def _publish(series: Series, staged: Scene, names: list[str]) -> None:
    with running(staged, OURS) as operator:
        operator.settle()
        operator.program.pause()
        _strip(staged, names)
        cpu = operator.cpu
        seconds = asyncio.run(_await_published(staged, set(names), operator))
        cpu = operator.cpu - cpu
    _strip(staged, names)
    floor = staged.bare(_own_requests(staged, set(names)))
    label = f"{len(names):,} agents"
    series.add(label, "time / bare client's time", seconds / floor.seconds, at_most=_GOAL_RATIO)
    series.add(label, "time until all are published", seconds, unit="s")
    series.add(label, "bare client's time", floor.seconds, unit="s")
    series.add(label, "CPU until all are published", cpu, unit="s")


def _strip(staged: Scene, names: Iterable[str]) -> None:
    calls = []
    for name in names:
        node = staged.plane.admin.get(f"{fleet.NODES}/{name}")
        body = {"status": fleet.endpoint_status(node, published=False)}
        calls.append(Call("PATCH", f"{fleet.NODES}/{name}/status", _STATUS, msgspec.json.encode(body)))
    staged.bare(calls)


def _own_requests(staged: Scene, names: set[str]) -> list[Call]:
    async def read() -> bytes:
        async with open_session(staged.credentials) as session:
            return await get(session, fleet.NODES)

    views, _ = decode_node_list(asyncio.run(read()))
    nodes = [read_node(view) for view in views]
    profiles, moment = fleet.catalogue(), Moment(wall=datetime.now(UTC), uptime=0.0)
    agents = Agents(profiles)
    for node in nodes:
        agents.observe(node)
    calls = []
    for node in nodes:
        around = agents.around(node, moment.wall)
        endpoint = decide(node, profiles, EMPTY, moment, around).plan.endpoint if node.name in names else None
        if endpoint is not None:
            request = endpoint_request(node, endpoint)
            body = msgspec.json.encode(request.body)
            calls.append(Call(request.method, request.path, request.content_type, body))
    return calls


async def _await_published(staged: Scene, names: set[str], operator: Running) -> float:
    missing = set(names)
    async with open_session(staged.credentials) as session:
        listed = msgspec.json.decode(await get(session, f"{fleet.NODES}?limit=1"))
        query = f"{fleet.NODES}?watch=1&resourceVersion={listed['metadata']['resourceVersion']}"
        async with session.get(query) as response:
            started = time.monotonic()
            operator.program.resume()
            async for line in lines(response):
                event = msgspec.json.decode(line)
                if _published(event["object"]):
                    missing.discard(event["object"]["metadata"]["name"])
                if not missing:
                    return time.monotonic() - started
    raise RuntimeError("the watch ended early")


def _published(node: dict[str, Any]) -> bool:
    return node["metadata"]["labels"].get(BACKEND_LABEL) == AGENT_BACKEND and all(
        node["status"].get(key) == value for key, value in fleet.endpoint_status(node, published=True).items()
    )


def _join(series: Series, staged: Scene) -> None:
    hosts = list(islice(fleet.bases(), len(staged.right) // 2 + 1, len(staged.right) // 2 + 1 + _JOINS))
    with running(staged, OURS) as operator:
        operator.settle()
        sent, cpu = operator.metric("clusterconform_api_requests_total"), operator.cpu
        for index, host in enumerate(hosts):
            node = agent_node(host, index=10_000 + index, now=datetime.now(UTC))
            name = staged.plane.admin.create(fleet.NODES, node)["metadata"]["name"]
            while not _published(staged.plane.admin.get(f"{fleet.NODES}/{name}")):
                operator.program.check()
                time.sleep(0.005)
        sent = operator.metric("clusterconform_api_requests_total") - sent
        cpu = operator.cpu - cpu
    label = "a join"
    series.add(label, "API calls", sent / _JOINS, at_most=2.0)
    series.add(label, "CPU", cpu / _JOINS * 1000, unit="ms", at_most=_GOAL_JOIN_MS)


def _withheld(count: int) -> int:
    book = AddressBook(21000, 9000)
    nodes = [read_node(view_node({"metadata": {"name": f"node-{index}"}})) for index in range(count)]
    for node in nodes:
        book.put(node)
    found = (book.endpoint(node.name) for node in nodes)
    return sum(one is not None and one.withheld is not None for one in found)


def _rest(series: Series, staged: Scene, mode: str) -> None:
    """One real kubelet, and what a minute of it costs in mode ``mode``."""
    from clusterconform.sandbox.fleet import Fleet  # noqa: PLC0415 - pulls in what no other figure needs

    admin = staged.plane.admin
    admin.patch("/apis/outpost.dhnt.io/v1alpha1/runtimeprofiles/k3s", _mode(mode))
    if mode == "Pinned":
        for document in yaml.safe_load_all(
            (ROOT / "deploy" / "overlays" / "pinned-addresses" / "pinning.yaml").read_text()
        ):
            plural = "policies" if document["kind"].endswith("Policy") else "policybindings"
            admin.create(f"/apis/admissionregistration.k8s.io/v1/mutatingadmission{plural}", document)
    kubelet = Fleet(staged.plane).start_hollow_kubelet(
        _KUBELET,
        labels={f"outpost.dhnt.io/{key}": to for key, to in _LABELS.items()},
        annotations={"k3s.io/node-args": '["agent","--node-name","bench"]'},
    )
    path = f"{fleet.NODES}/{_KUBELET}"
    with running(staged, OURS) as operator:
        operator.settle()
        time.sleep(2 * _KUBELET_SECONDS)
        theirs, ours = _requests(staged, "system:node:"), _requests(staged, "bench-operator")
        events = asyncio.run(_events(staged))
        goal = _GOAL_STORED if mode == "Pinned" else None
        series.add(mode, "stored writes, and events, a minute", events, at_most=goal)
        series.add(mode, "status requests of the kubelet", _requests(staged, "system:node:") - theirs)
        series.add(mode, "status requests of the operator", _requests(staged, "bench-operator") - ours)
    kubelet.stop()
    admin.delete(path)


async def _events(staged: Scene) -> int:
    """How often the kubelet's node changes in a minute, as every watcher of it is told."""
    count, query = 0, f"{fleet.NODES}?watch=1&fieldSelector=metadata.name%3D{_KUBELET}&resourceVersion="
    async with open_session(staged.credentials) as session:
        node = msgspec.json.decode(await get(session, f"{fleet.NODES}/{_KUBELET}"))
        async with session.get(query + node["metadata"]["resourceVersion"]) as response:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_REST_SECONDS):
                    async for _ in lines(response):
                        count += 1
    return count


_LABELS: Final = {"runtime": "agent", "backend": "k3s", "host": "bench"}
_KUBELET_SECONDS: Final = 10.0


def _mode(mode: str) -> dict[str, Any]:
    return {"spec": {"addressReconcile": {"mode": mode}}}


def _requests(staged: Scene, user: str) -> int:
    """PATCHes of a node's status by ``user``, from the audit log."""
    found = 0
    for line in staged.plane.audit_lines():
        entry = msgspec.json.decode(line)
        mine = entry["user"]["username"].startswith(user) and entry["verb"] == "patch"
        found += mine and entry.get("objectRef", {}).get("subresource") == "status"
    return found
