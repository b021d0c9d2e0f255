"""The commands that ask a cluster: what they do with one that is ill, forbidden or away, and what they write."""

import base64
import io
import json
import os
import stat
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import agent, at, conformant, marks, virtual
from click.testing import CliRunner, Result
from golden_fleet import LEDGER, NODES, PROFILES, REVIEWS, lease, populate
from stand_in import StandIn, kubeconfig, stand_in
from urllib3.exceptions import InsecureRequestWarning

from clusterconform.cli import live
from clusterconform.cli.formats import length
from clusterconform.cli.main import main
from clusterconform.contract.lease import LEASE_PATH
from clusterconform.contract.names import MARKS_ANNOTATION, RUNTIME_LABEL
from clusterconform.effects.clock import Clock

BIN = Path(sys.executable).parent
ROOT = Path(__file__).parents[2]
LIVE: dict[str, list[str]] = {
    "status": [],
    "explain": ["pi-4c7adeb6"],
    "doctor": [],
    "ledger": [],
    "prune": [],
    "check": ["--cluster"],
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[StandIn]:
    with stand_in(tmp_path) as server:
        populate(server)
        yield server


@pytest.fixture(autouse=True)
def this_machine_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Clock, "moment", lambda _: at(0))


def run(server: StandIn, command: str, *arguments: str) -> Result:
    """One call of ``command`` on ``server``."""
    done = CliRunner().invoke(main, [command, *arguments, "--kubeconfig", str(server.kubeconfig)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def value(done: Result) -> Any:
    """What was printed as JSON."""
    return json.loads(done.stdout)


# --- a cluster that cannot be had -----------------------------------------------------------------------------


def sentence(command: str, config: Path, *flags: str) -> str:
    """The one sentence with which ``command`` ends."""
    done = CliRunner().invoke(main, [command, *LIVE[command], "--kubeconfig", str(config), *flags])
    assert isinstance(done.exception, SystemExit), done.exception
    assert (done.exit_code, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    return line


@pytest.mark.parametrize("command", LIVE)
def test_a_cluster_out_of_reach_is_one_sentence(command: str, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(yaml.safe_dump(kubeconfig("http://127.0.0.1:9")))
    expected = "clusterconform: cannot reach the API server http://127.0.0.1:9: Connection refused"
    assert sentence(command, config) == expected


@pytest.mark.parametrize("command", LIVE)
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "not found"),
        ("a: [", "cannot use the kubeconfig"),
        ("", "cannot use the kubeconfig"),
        ("{}", "cannot use the kubeconfig"),
        ("[]", "cannot use the kubeconfig"),
        ("current-context: x\ncontexts: []\nclusters: []\nusers: []", "cannot use the kubeconfig"),
        (yaml.safe_dump(kubeconfig("nonsense")), "cannot"),
    ],
    ids=["missing", "no YAML", "empty", "an empty map", "a list", "no such context", "no server"],
)
def test_an_unusable_kubeconfig_is_one_sentence(
    command: str, text: str | None, words: str, tmp_path: Path
) -> None:
    config = tmp_path / "config"
    if text is not None:
        config.write_text(text)
    assert words in sentence(command, config)


@pytest.mark.parametrize("command", LIVE)
def test_a_kubeconfig_that_would_never_be_read_to_its_end_is_refused(command: str, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("- &a0 [x, x]\n" + "".join(f"- &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40)))
    assert "aliases that stand for millions of values" in sentence(command, config)
    assert "larger than 64 MiB" in sentence(command, Path("/dev/zero"))


def test_what_a_kubeconfig_names_is_looked_for_beside_it(server: StandIn) -> None:
    doc = yaml.safe_load(server.kubeconfig.read_text())
    doc["users"][0]["user"] = {"client-certificate": "me.crt", "client-key": "me.key"}
    server.kubeconfig.write_text(yaml.safe_dump(doc))
    assert "'me.crt' file does not exist" in sentence("status", server.kubeconfig)
    for name in ("me.crt", "me.key"):
        (server.kubeconfig.parent / name).write_text("never looked into, over a connection without TLS")
    assert run(server, "status").exit_code == 0


def test_a_context_is_chosen_and_an_unknown_one_refused(server: StandIn) -> None:
    doc = kubeconfig("http://127.0.0.1:9") | {"current-context": "main"}
    good = yaml.safe_load(server.kubeconfig.read_text())
    doc["clusters"].append({"name": "good", "cluster": good["clusters"][0]["cluster"]})
    doc["contexts"].append({"name": "other", "context": {"cluster": "good", "user": "me"}})
    server.kubeconfig.write_text(yaml.safe_dump(doc))
    assert run(server, "status").exit_code == 2
    assert run(server, "status", "--context", "other").exit_code == 0
    assert "no context 'o', but main, other" in sentence("status", server.kubeconfig, "--context", "o")


def test_a_certificate_that_is_not_verified_on_purpose_is_not_complained_of(
    server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    doc = yaml.safe_load(server.kubeconfig.read_text())
    doc["clusters"][0]["cluster"]["insecure-skip-tls-verify"] = True
    server.kubeconfig.write_text(yaml.safe_dump(doc))
    with live.Live(server.kubeconfig) as cluster:
        cluster.get("/version")
        warnings.warn("unverified", InsecureRequestWarning, stacklevel=1)  # an error in any other place


def test_of_several_kubeconfigs_the_first_that_exists_is_read(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [tmp_path / "nowhere", server.kubeconfig, tmp_path / "neither"]
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(map(str, files)))
    assert CliRunner().invoke(main, ["status"]).exit_code == 0
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nowhere"))
    done = CliRunner().invoke(main, ["status"])
    assert (done.exit_code, done.stderr.count("nowhere")) == (2, 2)


def test_in_a_pod_its_own_account_is_used(server: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "9")
    done = CliRunner().invoke(main, ["status"])
    assert done.exit_code == 2
    assert "serviceaccount" in done.stderr


class ImmediateTimer:
    """A second that is over at once."""

    daemon = False

    def __init__(self, _: float, action: Any) -> None:
        self._action = action

    def start(self) -> None:
        self._action()

    def cancel(self) -> None:
        pass

    join = cancel


@pytest.mark.parametrize(("slow", "shown"), [(True, True), (False, False)])
def test_progress_is_shown_on_a_terminal_once_something_takes_long(
    slow: bool, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    if slow:
        monkeypatch.setattr(threading, "Timer", ImmediateTimer)
    with live.progress("reading nodes") as say:
        say("500")
    assert ("reading nodes" in screen.getvalue()) is shown


def test_a_server_that_is_none_is_one_sentence(server: StandIn) -> None:
    server.objects[PROFILES] = {"kind": "Nonsense"}
    done = run(server, "status")
    assert done.exit_code == 2
    assert "does not answer as an API server does" in done.stderr


def test_without_the_crd_it_is_told_how_to_get_it(server: StandIn) -> None:
    server.refused[PROFILES] = (404, "the server could not find the requested resource")
    done = run(server, "status")
    assert done.exit_code == 2
    assert "clusterconform manifests crd | kubectl apply -f -" in done.stderr


@pytest.mark.parametrize("command", ["status", "explain", "prune", "check"])
def test_what_may_not_be_read_is_said_in_the_servers_words(server: StandIn, command: str) -> None:
    for path in (PROFILES, NODES):
        server.refused[path] = (403, "me cannot list that")
    done = run(server, command, *LIVE[command])
    assert done.exit_code == 2
    assert "me cannot list that" in done.stderr


def test_doctor_goes_on_where_something_may_not_be_read(server: StandIn) -> None:
    server.refused[NODES] = (403, "me cannot list nodes")
    server.refused[REVIEWS] = (403, "me cannot ask")
    done = run(server, "doctor", "-o", "json")
    states = {check["check"]: check["state"] for check in value(done)["checks"]}
    assert done.exit_code == 1
    assert (states["nodes"], states["permissions"], states["leader"]) == ("unknown", "unknown", "ok")


def test_doctor_shows_a_person_no_flood(server: StandIn) -> None:
    for number in range(40):
        condition = conformant("False", "Contested", f"another writer keeps putting label:{RUNTIME_LABEL} back")
        raw = virtual("vk-podman", f"host{number}", labels={RUNTIME_LABEL: "x"}, conditions=[condition])
        server.put(f"{NODES}/{raw['metadata']['name']}", raw)
    done = run(server, "doctor")
    assert "and 35 more; all of them: --output json" in done.stdout
    checks = {check["check"]: check["findings"] for check in value(run(server, "doctor", "-o", "json"))["checks"]}
    assert len(checks["contested"]) == 41


def test_a_pod_that_may_not_be_read_only_leaves_the_probe_untold(server: StandIn) -> None:
    server.refused["/api/v1/namespaces/clusterconform-system/pods"] = (403, "no")
    assert value(run(server, "explain", "pi-4c7adeb6", "-o", "json"))["probe"]["reason"] == "NoProbe"


def test_a_lease_that_may_not_be_read_makes_a_dead_node_undetermined(server: StandIn) -> None:
    server.refused["/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/ash-33333333"] = (403, "no")
    reaping = value(run(server, "explain", "ash-33333333", "-o", "json"))["reaping"]
    assert (reaping["candidate"], reaping["reason"]) == (False, "LeaseUnreadable")


def test_a_large_fleet_is_read_in_pages(server: StandIn) -> None:
    server.put_all(NODES, [virtual(host=f"h{number}") for number in range(1200)])
    rows = value(run(server, "explain", "--all", "-o", "json"))
    assert len(rows) == 1211
    assert sum(path.startswith(f"{NODES}?limit=500") for path in server.asked) == 3


def test_credentials_are_seen_by_nobody_and_gone_afterwards(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    doc = yaml.safe_load(server.kubeconfig.read_text())
    secret = base64.b64encode(b"secret").decode()
    doc["users"][0]["user"] = {"client-certificate-data": secret, "client-key-data": secret, "token": "x"}
    server.kubeconfig.write_text(yaml.safe_dump(doc))
    with live.Live(server.kubeconfig) as cluster:
        cluster.get("/version")
        (inside,) = folder.iterdir()
        assert stat.S_IMODE(inside.stat().st_mode) == 0o700
        assert {file.read_bytes() for file in inside.iterdir()} == {b"secret"}
    assert list(folder.iterdir()) == []


def test_a_credential_plugin_of_the_newest_protocol_is_asked(server: StandIn) -> None:
    doc = yaml.safe_load(server.kubeconfig.read_text())
    answer = '{"apiVersion": "client.authentication.k8s.io/v1", "status": {"token": "t"}}'
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "echo", "args": [answer]}
    doc["users"][0]["user"] = {"exec": plugin}
    server.kubeconfig.write_text(yaml.safe_dump(doc))
    assert run(server, "status").exit_code == 0
    doc["users"][0]["user"]["exec"]["command"] = "/nowhere"
    server.kubeconfig.write_text(yaml.safe_dump(doc))
    assert "/nowhere" in sentence("status", server.kubeconfig)


# --- what they say --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [name for name in LIVE if name != "check"])
def test_yaml_says_the_same_as_json(server: StandIn, command: str) -> None:
    texts = [run(server, command, *LIVE[command], "-o", form).stdout for form in ("json", "yaml")]
    assert json.loads(texts[0]) == yaml.safe_load(texts[1])


@pytest.mark.parametrize("command", LIVE)
def test_no_command_writes_by_itself(server: StandIn, command: str) -> None:
    run(server, command, *LIVE[command])
    assert {path for _, path, _ in server.sent} <= {REVIEWS}


def test_a_node_that_is_not_there_is_refused_with_the_nearest(server: StandIn) -> None:
    done = run(server, "explain", "laptop-vk-podmann")
    assert done.exit_code == 2
    assert done.stderr == (
        "clusterconform: there is no node 'laptop-vk-podmann'. Did you mean 'laptop-vk-podman'?\n"
    )


@pytest.mark.parametrize("arguments", [[], ["pi-4c7adeb6", "--all"]])
def test_explain_wants_one_node_or_all(server: StandIn, arguments: list[str]) -> None:
    done = run(server, "explain", *arguments)
    assert done.exit_code == 2
    assert "Name one node, or say --all." in done.stderr


def test_check_of_a_cluster_names_what_it_judges_and_leaves_owned_pods_to_their_owner(server: StandIn) -> None:
    owned = {
        "metadata": {"name": "p", "namespace": "a", "ownerReferences": [{"controller": True}]},
        "spec": {"nodeSelector": {"type": "virtual-kubelet"}},
    }
    alone = {"metadata": {"name": "q", "namespace": "a"}, "spec": {"nodeSelector": {"type": "virtual-kubelet"}}}
    server.put("/api/v1/namespaces/a/pods/p", owned)
    server.put("/api/v1/namespaces/a/pods/q", alone)
    for path in (
        *(f"/apis/apps/v1/{kind}" for kind in ("deployments", "statefulsets", "replicasets")),
        "/apis/batch/v1/cronjobs",
        "/apis/batch/v1/jobs",
        "/api/v1/replicationcontrollers",
    ):
        server.put(path, {"kind": "DeploymentList", "apiVersion": "apps/v1", "items": []})
    rows = value(run(server, "check", "--cluster", "-o", "json"))["findings"]
    found = {(row["file"], row["line"], row["rule"]) for row in rows}
    assert ("pod/a/q", 0, "W1") in found
    assert ("daemonset/logging/shipper", 0, "W2") in found
    assert ("node/yew-55555555", 0, "IdentityConflict") in found
    assert not [row for row in found if row[0] == "pod/a/p"]


@pytest.mark.parametrize(
    ("arguments", "events"),
    [
        ([], ["intended", "deleted", None, "refused_mass_stale", "skipped"]),
        (["--since", "24h"], ["refused_mass_stale", "skipped"]),
        (["--since", "2026-08-01T11:15:00Z"], ["skipped"]),
        (["--node", "old-00000000"], ["intended", "deleted"]),
        (["--node", "nobody"], []),
    ],
)
def test_the_ledger_is_cut_by_time_and_node(
    server: StandIn, arguments: list[str], events: list[str | None]
) -> None:
    done = run(server, "ledger", *arguments, "-o", "json")
    assert [line.get("event") for line in value(done)] == events
    assert "1 lines cannot be read" in done.stderr


@pytest.mark.parametrize(("listed", "shown"), [(19, " 19 "), (20, " 20+ ")])
def test_as_many_held_nodes_as_the_operator_lists_may_be_more(server: StandIn, listed: int, shown: str) -> None:
    rows = [{"name": f"ash-{number}", "reason": "MassStale"} for number in range(listed)]
    profile = server.objects[f"{PROFILES}/k3s"]
    profile["status"]["nodeGC"]["held"] = rows
    line = next(row for row in run(server, "status").stdout.splitlines() if row.strip().startswith("k3s "))
    assert shown in f"{line} "


def test_a_deletion_whose_outcome_nobody_saw_is_said_to_be_unknown(server: StandIn) -> None:
    line = '{"at":"2026-08-01T12:00:00Z","event":"intended","node":"elm-22222222","uid":"uid-2"}\n'
    server.objects[LEDGER]["data"]["ledger.jsonl"] += line
    rows = run(server, "ledger").stdout.splitlines()
    assert ["elm-22222222" in row for row in rows if "no outcome is known" in row] == [True]


def test_a_ledger_that_is_not_there_is_empty(server: StandIn) -> None:
    del server.objects[LEDGER]
    assert value(run(server, "ledger", "-o", "json")) == []
    assert run(server, "ledger").stdout == "nothing is written there\n"


def test_a_wrong_time_is_refused_with_an_example(server: StandIn) -> None:
    done = run(server, "ledger", "--since", "yesterday")
    assert done.exit_code == 2
    assert "such as 2026-08-01T12:00:00Z or a duration such as 24h" in done.stderr


def test_the_ledger_is_followed_until_ctrl_c(server: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    naps = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) > 1:
            raise KeyboardInterrupt
        ledger = server.objects[LEDGER]["data"]
        ledger["ledger.jsonl"] += '{"at":"2026-08-01T12:00:00Z","event":"deleted","node":"elm-22222222"}\n'

    monkeypatch.setattr(time, "sleep", nap)
    done = run(server, "ledger", "--follow", "--node", "elm-22222222")
    assert done.exit_code == 0
    assert [json.loads(line)["event"] for line in done.stdout.splitlines()] == ["skipped", "deleted"]


def test_the_status_is_watched_until_ctrl_c(server: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    naps = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        server.put(LEASE_PATH, lease(seconds_ago=90))
        if len(naps) > 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", nap)
    done = run(server, "status", "--watch")
    assert done.exit_code == 0
    assert "operator-7f9_1, renewed 3s ago" in done.stdout
    assert "operator-7f9_1 does not answer: its Lease was renewed 1m30s ago and has run out" in done.stdout


@pytest.mark.parametrize(
    ("command", "path"), [(["status", "--watch"], PROFILES), (["ledger", "--follow"], LEDGER)]
)
def test_a_cluster_that_is_away_for_a_while_is_waited_for(
    server: StandIn, monkeypatch: pytest.MonkeyPatch, command: list[str], path: str
) -> None:
    naps = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        server.refused.clear()
        if len(naps) == 1:
            server.refused[path] = (503, "the server is starting")
        if len(naps) > 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", nap)
    done = run(server, command[0], *command[1:])
    assert done.exit_code == 0
    assert done.stderr.count("the server is starting") == 1
    assert len(naps) == 4


def test_ctrl_c_leaves_nothing_half_written(server: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(live.Live, "items", interrupted)
    done = CliRunner().invoke(main, ["explain", "--all", "--kubeconfig", str(server.kubeconfig)])
    assert (done.exit_code, done.output) == (130, "")


def test_without_a_lease_nobody_leads(server: StandIn) -> None:
    del server.objects[LEASE_PATH]
    assert "none: nobody leads, and nothing is written" in run(server, "status").stdout


def test_a_pipe_gets_one_line_a_row_and_no_colour(server: StandIn) -> None:
    place = {key: text for key, text in os.environ.items() if key != "COLUMNS"}
    command = [str(BIN / "clusterconform"), "explain", "--all", "--kubeconfig", str(server.kubeconfig)]
    done = subprocess.run(
        command, env=place, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=True
    )
    assert len(done.stdout.splitlines()) == 12
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (59, "59s"), (60, "1m"), (3725, "1h2m"), (90000, "1d1h"), (-90, "-1m30s")]
)
def test_a_length_of_time_is_two_units_long(seconds: float, text: str) -> None:
    assert length(seconds) == text


# --- prune: the one command that writes -----------------------------------------------------------------------


def stopped(server: StandIn) -> None:
    """Let the operator's Lease run out."""
    server.put(LEASE_PATH, lease(seconds_ago=60))


def test_prune_refuses_while_a_leader_lives(server: StandIn) -> None:
    done = run(server, "prune", "--yes")
    assert (done.exit_code, done.stdout, server.sent) == (1, "", [])
    assert "operator-7f9_1 leads and would put everything back" in done.stderr


def test_prune_takes_off_what_is_listed_and_nothing_else(server: StandIn) -> None:
    stopped(server)
    done = run(server, "prune", "--yes", "-o", "json")
    assert done.exit_code == 0
    assert value(done)["dryRun"] is False
    nodes: dict[str, list[Any]] = {}
    for method, path, body in server.sent:
        assert method == "PATCH"
        nodes.setdefault(path.split("/")[4], []).append(body)
    assert set(nodes) == {"pi-4c7adeb6", "oak-11111111", "laptop-vk-podman", "desk-vk-ollama"}
    ops, condition = nodes["laptop-vk-podman"]
    assert ops == [
        {"op": "test", "path": "/metadata/uid", "value": "uid-5"},
        {
            "op": "test",
            "path": "/metadata/annotations/outpost.dhnt.io~1managed-marks",
            "value": "label:outpost.dhnt.io/runtime",
        },
        {"op": "remove", "path": "/metadata/labels/outpost.dhnt.io~1runtime"},
        {"op": "remove", "path": "/metadata/annotations/outpost.dhnt.io~1managed-marks"},
    ]
    assert condition == {
        "metadata": {"uid": "uid-5"},
        "status": {"conditions": [{"type": "RuntimeConformant", "$patch": "delete"}]},
    }


def test_prune_leaves_a_mark_that_it_does_not_know_and_says_so(server: StandIn) -> None:
    stopped(server)
    done = run(server, "prune", "--yes")
    assert "x:unknown (unknown, stays)" in done.stdout
    (ops,) = [body for _, path, body in server.sent if path.endswith("/desk-vk-ollama")]
    assert ops[-1] == {
        "op": "add",
        "path": "/metadata/annotations/outpost.dhnt.io~1managed-marks",
        "value": "x:unknown",
    }


@pytest.mark.parametrize(
    ("refusal", "outcome", "code"),
    [
        ((422, "the server rejected our request due to an error in our request"), "changed meanwhile", 1),
        ((404, "nodes not found"), "gone", 0),
        ((403, "me cannot patch nodes"), "me cannot patch nodes", 1),
    ],
)
def test_prune_tells_node_by_node_how_it_went(
    server: StandIn, refusal: tuple[int, str], outcome: str, code: int
) -> None:
    stopped(server)
    server.refused[f"{NODES}/laptop-vk-podman"] = refusal
    done = run(server, "prune", "--yes", "-o", "json")
    outcomes = {row["node"]: row["outcome"] for row in value(done)["nodes"]}
    assert outcome in outcomes["laptop-vk-podman"]
    assert outcomes["pi-4c7adeb6"] == "taken off"
    assert done.exit_code == code


def test_prune_of_a_fleet_without_our_marks_does_nothing(server: StandIn) -> None:
    for path in [path for path in server.objects if path.startswith(NODES)]:
        del server.objects[path]
    server.put_all(NODES, [agent(), virtual()])
    assert run(server, "prune").stdout == "no node carries a mark of ours\n"


def test_marks_that_are_listed_but_no_longer_there_cost_no_operation(server: StandIn) -> None:
    stopped(server)
    listed = marks("label:gone", "taint:virtual-kubelet.io/provider")
    raw = virtual(host="x", annotations={MARKS_ANNOTATION: listed[MARKS_ANNOTATION]})
    server.put_all(NODES, [raw])
    run(server, "prune", "--yes")
    (ops,) = [body for _, path, body in server.sent if path.endswith("/x-vk-podman")]
    assert [(op["op"], op["path"], op.get("value")) for op in ops if "taints" in op["path"]] == [
        ("test", "/spec/taints", raw["spec"]["taints"]),
        ("add", "/spec/taints", []),
    ]
    assert "gone" not in json.dumps([op for op in ops if op["op"] == "remove"])
