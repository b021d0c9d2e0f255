"""A Kubernetes control plane on loopback: etcd, API server, and on request controller manager and scheduler.

The whole of it lives in one directory and ends with it::

    with Builder() as builder, ControlPlane(builder) as plane:
        plane.start_controller_manager()
        print(plane.server, plane.kubeconfig)
"""

import atexit
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from clusterconform.contract.lease import unheld
from clusterconform.sandbox.admin import Admin, RequestRefused
from clusterconform.sandbox.builder import Builder
from clusterconform.sandbox.certificates import Authority, signing_pair, write_privately
from clusterconform.sandbox.command_lines import (
    NodeLifecycle,
    Place,
    api_server_flags,
    controller_manager_flags,
    etcd_flags,
    scheduler_flags,
)
from clusterconform.sandbox.departure import Departure, undisturbed
from clusterconform.sandbox.kubeconfig import write_kubeconfig
from clusterconform.sandbox.lodging import Lodging, Ports
from clusterconform.sandbox.parts import ETCD, Part
from clusterconform.sandbox.programs import Program, Programs
from clusterconform.sandbox.waiting import SandboxFailed, wait_until

ADMINISTRATOR: Final = "sandbox-admin"
ADMINISTRATORS: Final = ("system:masters",)

_READY_SECONDS: Final = 90.0  # it takes five on an idle machine; compilers may run beside it
_STOP_SECONDS: Final = 3.0  # it would wait a minute for its watchers to leave
_REQUESTS_IN_FLIGHT: Final = 3000
_TOKEN_SECONDS: Final = 24 * 3600


def whole_lines(text: bytes) -> list[bytes]:
    """The lines of a file that a program is writing, without the last one where it has not ended yet."""
    return text.split(b"\n")[:-1]


class ControlPlane:
    """A control plane that runs from ``start`` (or ``with``) to ``stop``.

    Attributes:
        builder: where its programs come from.
        programs: everything that runs in this sandbox; more may be started here, and is ended by ``stop``.
        ports: gives free ports on 127.0.0.1.
        authority: signs all credentials.
        etcd, api_server, controller_manager, scheduler: the running programs, or None.
    """

    def __init__(
        self,
        builder: Builder,
        *,
        directory: Path | None = None,
        keep: bool = False,
        audit: bool = False,
        requests_in_flight: int = _REQUESTS_IN_FLIGHT,
        api_server_flags: Sequence[str] = (),
    ) -> None:
        """Describe a control plane; nothing runs yet and nothing is written.

        Args:
            builder: where the programs come from.
            directory: where it lives: a path that is absent or empty; a temporary one if None.
            keep: leave the directory behind at the end.
            audit: record every request in ``audit_log`` (who, what, result; no bodies).
            requests_in_flight: how many requests the API server serves at the same time.
            api_server_flags: further flags of the API server, for example feature gates.
        """
        self.builder = builder
        self.etcd: Program | None = None
        self.api_server: Program | None = None
        self.controller_manager: Program | None = None
        self.scheduler: Program | None = None
        self._wanted = (directory, keep)
        self._audit = audit
        self._requests_in_flight = requests_in_flight
        self._api_server_flags = tuple(api_server_flags)
        self._departure = Departure()
        self._lodging: Lodging | None = None
        self._endings = ExitStack()

    def __enter__(self) -> Self:
        """Start it."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it."""
        self.stop()

    @property
    def directory(self) -> Path:
        """The directory of this sandbox."""
        return self._lodged.path

    @property
    def server(self) -> str:
        """URL of the API server."""
        return self._place.server

    @property
    def kubeconfig(self) -> Path:
        """Kubeconfig of an administrator who may do everything."""
        return self.kubeconfig_for(ADMINISTRATOR, ADMINISTRATORS)

    @property
    def audit_log(self) -> Path:
        """The file with one JSON event per request and stage, if ``audit`` was asked for."""
        return self.directory / "audit.log"

    def audit_lines(self) -> list[bytes]:
        """The events in ``audit_log``, without one that the API server is in the middle of writing."""
        return whole_lines(self.audit_log.read_bytes())

    def start(self) -> None:
        """Start etcd and the API server, and wait until the API is ready.

        Raises:
            PartUnavailable: a program is nowhere and cannot be built.
            SandboxFailed: a program ended, or the API was not ready in time.
            FileExistsError: the wanted directory is not empty.
        """
        for part in (ETCD, self.builder.kubernetes.api_server):
            self.builder.provide(part)
        self._departure.arm()
        atexit.register(self.stop)
        try:
            self._move_in()
            self.start_etcd()
            self.start_api_server()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End every program of the sandbox and remove its directory. May be called again."""
        with undisturbed():
            self._endings.close()
            self._lodging = None
            self.etcd = self.api_server = self.controller_manager = self.scheduler = None
            atexit.unregister(self.stop)
        self._departure.disarm()

    def at_end(self, farewell: Callable[[], None]) -> None:
        """Have something called by ``stop``, before any program is ended; the last one is called first."""
        self._endings.callback(farewell)

    def folder(self, name: str) -> Path:
        """Give a folder in the sandbox's directory, made if need be."""
        return self._lodged.folder(name)

    def await_health(self, program: Program, port: int) -> None:
        """Wait until a program answers ``/healthz`` on a port, with a certificate of our authority.

        Raises:
            SandboxFailed: it ended, or did not answer in time.
        """
        pki = self._place.pki
        health = Admin(
            f"https://127.0.0.1:{port}",
            authority=pki / "ca.crt",
            certificate=pki / "admin.crt",
            key=pki / "admin.key",
        )
        try:
            wait_until(
                lambda: health.answers("/healthz"),
                what=f"{program.name} is healthy",
                seconds=_READY_SECONDS,
                programs=[program],
            )
        finally:
            health.close()

    def start_etcd(self) -> Program:
        """Start etcd, on the same port and with what it has stored; the API server finds it again by itself."""
        if self.etcd is None or not self.etcd.running:
            command: list[str | Path] = [self.builder.provide(ETCD), *etcd_flags(self._place)]
            self.etcd = self.programs.start("etcd", command)
        return self.etcd

    def kill_etcd(self) -> None:
        """End etcd in the middle of whatever it is doing; ``start_etcd`` brings it back."""
        if self.etcd is not None:
            self.etcd.kill()

    def start_api_server(self) -> Program:
        """Start the API server, on the same port each time, and wait until it is ready.

        Raises:
            SandboxFailed: it ended, or was not ready in time.
        """
        if self.api_server is not None and self.api_server.running:
            return self.api_server
        audit = (self._audit_policy(), self.audit_log) if self._audit else None
        flags = api_server_flags(self._place, audit=audit, requests_in_flight=self._requests_in_flight)
        executable = self.builder.provide(self.builder.kubernetes.api_server)
        command: list[str | Path] = [executable, *flags, *self._api_server_flags]
        self.api_server = self.programs.start("kube-apiserver", command)
        needed = [program for program in (self.api_server, self.etcd) if program is not None]
        # The default namespace is made a moment after /readyz turns green, and everybody needs it.
        for path in ("/readyz", "/api/v1/namespaces/default"):
            wait_until(
                lambda path=path: self.admin.answers(path),  # type: ignore[misc] # a default binds it early
                what=f"the API server answers {path}",
                seconds=_READY_SECONDS,
                programs=needed,
            )
        return self.api_server

    def stop_api_server(self, *, seconds: float = _STOP_SECONDS) -> None:
        """Ask the API server to end, and end it after ``seconds``; ``start_api_server`` brings it back."""
        if self.api_server is not None:
            self.api_server.stop(seconds=seconds)

    def kill_api_server(self) -> None:
        """End the API server in the middle of whatever it is doing; ``start_api_server`` brings it back."""
        if self.api_server is not None:
            self.api_server.kill()

    def start_controller_manager(self, lifecycle: NodeLifecycle | None = None) -> Program:
        """Start the controller manager, and wait until it works.

        Args:
            lifecycle: its patience with silent nodes; upstream's defaults if None. A running controller
                manager is replaced.

        Raises:
            PartUnavailable: it is nowhere and cannot be built.
            SandboxFailed: it ended, or was not ready in time.
        """
        if self.controller_manager is not None:
            self.controller_manager.kill()
        port = self.ports.take()
        flags = controller_manager_flags(
            self._place,
            self.kubeconfig_for("system:kube-controller-manager"),
            port,
            lifecycle or NodeLifecycle(),
        )
        self.controller_manager = self._start_component(self.builder.kubernetes.controller_manager, flags, port)
        # Its first deed that others wait for: without this account no pod can be created.
        wait_until(
            lambda: self.admin.answers("/api/v1/namespaces/default/serviceaccounts/default"),
            what="the controller manager has made the default service account",
            seconds=_READY_SECONDS,
            programs=[self.controller_manager],
        )
        return self.controller_manager

    def start_scheduler(self) -> Program:
        """Start the scheduler, and wait until it is healthy. Raises as ``start_controller_manager`` does."""
        if self.scheduler is not None:
            self.scheduler.kill()
        port = self.ports.take()
        flags = scheduler_flags(self._place, self.kubeconfig_for("system:kube-scheduler"), port)
        self.scheduler = self._start_component(self.builder.kubernetes.scheduler, flags, port)
        return self.scheduler

    def kubeconfig_for(self, user: str, groups: Iterable[str] = ()) -> Path:
        """Give a kubeconfig whose client certificate makes its holder ``user``, member of ``groups``."""
        members = tuple(groups)
        path = self._lodged.folder("kubeconfigs") / f"{_file_name(user, *members)}.yaml"
        if not path.exists():
            write_kubeconfig(
                path,
                server=self.server,
                authority=self.authority.certificate,
                user=user,
                credential=self.authority.client(user, members),
            )
        return path

    def vacate(self) -> None:
        """Make the operator's Lease as it is when the last leader has just left in order.

        Without one the first operator waits for as long as a Lease lasts, since a leader may live whose Lease
        was deleted; in a sandbox there is none. Needs the operator's namespace.
        """
        request = unheld()
        self.admin.create(request.path, {**request.body, "spec": {"holderIdentity": ""}})

    def service_account_kubeconfig(self, namespace: str, name: str, *, seconds: int = _TOKEN_SECONDS) -> Path:
        """Give a kubeconfig with a fresh token of a service account that exists.

        Args:
            namespace: namespace of the account, and of commands that name none.
            name: name of the account.
            seconds: how long the token is valid; the API server wants at least 600.

        Raises:
            SandboxFailed: there is no such account.
        """
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": seconds},
        }
        try:
            token = self.admin.create(path, request)["status"]["token"]
        except RequestRefused as refused:
            raise SandboxFailed(f"No token for the service account {namespace}/{name}: {refused}.") from refused
        user = f"system:serviceaccount:{namespace}:{name}"
        return write_kubeconfig(
            self._lodged.folder("kubeconfigs") / f"{_file_name(user)}.yaml",
            server=self.server,
            authority=self.authority.certificate,
            user=user,
            token=token,
            namespace=namespace,
        )

    @property
    def _lodged(self) -> Lodging:
        if self._lodging is None:
            raise SandboxFailed("The control plane is not running: start it first.")
        return self._lodging

    def _move_in(self) -> None:
        directory, keep = self._wanted
        self._lodging = Lodging.open(directory, keep=keep)
        self._endings.callback(self._lodging.close)
        self.programs = Programs(self._lodging.folder("logs"))
        self._endings.callback(self.programs.close)
        self.ports = Ports()
        pki = self._lodging.folder("pki")
        self._place = Place(
            pki=pki,
            data=self._lodging.folder("data"),
            etcd_port=self.ports.take(),
            etcd_peer_port=self.ports.take(),
            api_port=self.ports.take(),
        )
        now = datetime.now(UTC)  # noqa: TID251 - a sandbox lives in real time
        self.authority = Authority.create("sandbox", now=now)
        write_privately(pki / "ca.crt", self.authority.certificate)
        for name in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"):
            self.authority.server(name).write(pki, name)
        self.authority.client("etcd-client").write(pki, "etcd-client")
        self.authority.client("kube-apiserver-kubelet-client", ADMINISTRATORS).write(pki, "kubelet-client")
        certificate, key = self.authority.client(ADMINISTRATOR, ADMINISTRATORS).write(pki, "admin")
        private, public = signing_pair()
        write_privately(pki / "tokens.key", private)
        write_privately(pki / "tokens.pub", public)
        self.admin = Admin(self.server, authority=pki / "ca.crt", certificate=certificate, key=key)
        self._endings.callback(self.admin.close)

    def _start_component(self, part: Part, flags: Sequence[str], port: int) -> Program:
        executable = self.builder.provide(part)
        program = self.programs.start(part.name, [executable, *flags])
        self.await_health(program, port)
        return program

    def _audit_policy(self) -> Path:
        policy = {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": [{"level": "Metadata"}],
        }
        path = self.directory / "audit-policy.yaml"
        path.write_text(json.dumps(policy))
        return path


def _file_name(user: str, *groups: str) -> str:
    """Give a file name that people recognise and that differs for each combination of user and groups."""
    readable = re.sub(r"[^A-Za-z0-9.-]+", "-", user).strip("-.")
    return f"{readable}-{hashlib.sha256('|'.join((user, *groups)).encode()).hexdigest()[:8]}"
