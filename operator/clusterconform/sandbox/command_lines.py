"""The command lines of the control plane's programs, each flag with its reason where it is not obvious."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

ISSUER: Final = "https://kubernetes.default.svc"

_STORAGE_BYTES: Final = 4 * 1024**3  # etcd's default of 2 GiB is near when thousands of nodes report often


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where things are: the folders of certificates and of data, and the ports on 127.0.0.1."""

    pki: Path
    data: Path
    etcd_port: int
    etcd_peer_port: int
    api_port: int

    @property
    def server(self) -> str:
        """URL of the API server."""
        return f"https://127.0.0.1:{self.api_port}"

    @property
    def etcd(self) -> str:
        """URL of the storage."""
        return f"https://127.0.0.1:{self.etcd_port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLifecycle:
    """How patient the controller manager is with silent nodes; all in seconds, defaults as shipped upstream.

    Attributes:
        monitor_period: how often it looks at the nodes.
        monitor_grace_period: how long a node may be silent before its conditions become Unknown.
        eviction_rate: nodes per second whose pods are evicted in a healthy zone.
    """

    monitor_period: float = 5.0
    monitor_grace_period: float = 50.0
    eviction_rate: float = 0.1


def etcd_flags(place: Place) -> list[str]:
    """Give the flags of etcd: one member, loopback, mutual TLS."""
    peer = f"https://127.0.0.1:{place.etcd_peer_port}"
    tls = [
        f"--{role}{flag}={place.pki / file}"
        for role in ("", "peer-")
        for flag, file in (("cert-file", "etcd.crt"), ("key-file", "etcd.key"), ("trusted-ca-file", "ca.crt"))
    ]
    return [
        "--name=sandbox",
        f"--data-dir={place.data / 'etcd'}",
        f"--listen-client-urls={place.etcd}",
        f"--advertise-client-urls={place.etcd}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=sandbox={peer}",
        *tls,
        "--client-cert-auth=true",
        "--peer-client-cert-auth=true",
        "--unsafe-no-fsync=true",  # nothing here has to survive a power cut, and it is several times faster
        f"--quota-backend-bytes={_STORAGE_BYTES}",
        "--log-level=warn",
    ]


def api_server_flags(place: Place, *, audit: tuple[Path, Path] | None, requests_in_flight: int) -> list[str]:
    """Give the flags of the API server.

    Args:
        place: where things are.
        audit: paths of the audit policy and of the audit log; None for no audit.
        requests_in_flight: how many requests are served at the same time, a third of them writes.
    """
    pki = place.pki
    flags = [
        "--bind-address=127.0.0.1",
        f"--secure-port={place.api_port}",
        "--external-hostname=localhost",
        # The service "kubernetes" would have to point at a loopback address, which the API itself forbids.
        "--endpoint-reconciler-type=none",
        f"--cert-dir={pki}",
        f"--tls-cert-file={pki / 'kube-apiserver.crt'}",
        f"--tls-private-key-file={pki / 'kube-apiserver.key'}",
        f"--client-ca-file={pki / 'ca.crt'}",
        f"--etcd-servers={place.etcd}",
        f"--etcd-cafile={pki / 'ca.crt'}",
        f"--etcd-certfile={pki / 'etcd-client.crt'}",
        f"--etcd-keyfile={pki / 'etcd-client.key'}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--service-account-issuer={ISSUER}",
        f"--service-account-signing-key-file={pki / 'tokens.key'}",
        f"--service-account-key-file={pki / 'tokens.pub'}",
        "--service-cluster-ip-range=10.96.0.0/16",
        # The one type that a tunnel publishes: logs and exec work through it or not at all.
        "--kubelet-preferred-address-types=ExternalIP",
        f"--kubelet-client-certificate={pki / 'kubelet-client.crt'}",
        f"--kubelet-client-key={pki / 'kubelet-client.key'}",
        "--allow-privileged=true",
        f"--max-requests-inflight={requests_in_flight - requests_in_flight // 3}",
        f"--max-mutating-requests-inflight={requests_in_flight // 3}",
        "--profiling=false",
    ]
    if audit is not None:
        policy, log = audit
        flags += [f"--audit-policy-file={policy}", f"--audit-log-path={log}", "--audit-log-maxsize=1000"]
    return flags


def controller_manager_flags(place: Place, kubeconfig: Path, port: int, lifecycle: NodeLifecycle) -> list[str]:
    """Give the flags of the controller manager, which serves its health on ``port``."""
    pki = place.pki
    return [
        *_component_flags(place, kubeconfig, port, "kube-controller-manager"),
        "--use-service-account-credentials=true",  # so that the audit log names the controller
        f"--service-account-private-key-file={pki / 'tokens.key'}",
        f"--root-ca-file={pki / 'ca.crt'}",
        f"--node-monitor-period={_duration(lifecycle.monitor_period)}",
        f"--node-monitor-grace-period={_duration(lifecycle.monitor_grace_period)}",
        f"--node-eviction-rate={lifecycle.eviction_rate:g}",
        "--kube-api-qps=200",  # the default of 20 makes a DaemonSet on thousands of nodes a matter of minutes
        "--kube-api-burst=400",
    ]


def scheduler_flags(place: Place, kubeconfig: Path, port: int) -> list[str]:
    """Give the flags of the scheduler, which serves its health on ``port``."""
    return [
        *_component_flags(place, kubeconfig, port, "kube-scheduler"),
        "--kube-api-qps=200",
        "--kube-api-burst=400",
    ]


def _component_flags(place: Place, kubeconfig: Path, port: int, name: str) -> list[str]:
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--tls-cert-file={place.pki / f'{name}.crt'}",
        f"--tls-private-key-file={place.pki / f'{name}.key'}",
        "--leader-elect=false",  # it is alone
        "--profiling=false",
    ]


def _duration(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"
