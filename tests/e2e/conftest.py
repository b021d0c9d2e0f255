"""One real control plane for all end-to-end tests of a session, of the Kubernetes that ``--kubernetes`` names."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from deployment import kubectl_program
from operators import NODES, PROFILES, World
from reaping_stage import Stage, staged

from clusterconform.contract.names import CRD_NAME
from clusterconform.sandbox.builder import Builder, Progress, State
from clusterconform.sandbox.control_plane import ControlPlane
from clusterconform.sandbox.fleet import Fleet
from clusterconform.sandbox.parts import CHECKING_TOOLS, VERSIONS
from clusterconform.sandbox.waiting import wait_until

PARTS = pytest.StashKey[Builder]()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the programs before the first test: a cold build takes minutes, which no test should pay for."""
    config = session.config
    if config.option.collectonly or not any("/e2e/" in item.nodeid for item in session.items):
        return
    terminal = config.pluginmanager.get_plugin("terminalreporter")

    def report(news: Progress) -> None:
        if terminal is not None and news.state not in {State.FOUND, State.BUILDING}:
            terminal.write_line(f"{news.part.name}: {news.state} after {news.elapsed:.0f} s")

    kubernetes = VERSIONS[config.option.kubernetes]
    builder = config.stash[PARTS] = Builder(kubernetes=kubernetes, report=report)
    # The tools are as long in building as all the rest, and few tests ask for them.
    asked_for = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    tools = [tool for tool in CHECKING_TOOLS if tool.name in asked_for]
    for future in builder.start([*kubernetes.parts, *tools]).values():
        future.exception()  # whoever needs a part that failed is told then


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop a build that was interrupted."""
    if (builder := config.stash.get(PARTS, None)) is not None:
        builder.close()


@pytest.fixture(scope="session")
def builder(request: pytest.FixtureRequest) -> Builder:
    """The programs of the sandbox."""
    return request.config.stash[PARTS]


@pytest.fixture(scope="session")
def plane(builder: Builder) -> Iterator[ControlPlane]:
    """A control plane with a controller manager and an audit log."""
    with ControlPlane(builder, audit=True) as plane:
        plane.start_controller_manager()
        yield plane


@pytest.fixture(scope="session")
def fleet(plane: ControlPlane) -> Fleet:
    """A fleet on that control plane, with kwok running and no nodes yet."""
    fleet = Fleet(plane)
    fleet.start_kwok()
    return fleet


@pytest.fixture(scope="session")
def kubectl(
    plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs kubectl as the administrator of that control plane: ``kubectl(*args, input=None)``."""
    program = kubectl_program()
    # Its cache knows servers by port, and another control plane may have had this one.
    cache = tmp_path_factory.mktemp("kubectl")
    place = (f"--kubeconfig={plane.kubeconfig}", f"--cache-dir={cache}")

    def run(*args: str, input: str | None = None) -> subprocess.CompletedProcess[str]:  # noqa: A002 - subprocess's word
        return subprocess.run(
            [program, *place, *args], input=input, text=True, capture_output=True, check=False, timeout=60
        )

    return run


@pytest.fixture(scope="session")
def crd(kubectl: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    """RuntimeProfile is a kind of that control plane."""
    file = Path(__file__).parents[2] / "crds" / "runtimeprofiles.yaml"
    for command in (
        ("apply", "--server-side", "-f", str(file)),
        ("wait", "--for=condition=Established", "--timeout=30s", f"crd/{CRD_NAME}"),
    ):
        done = kubectl(*command)
        assert done.returncode == 0, done.stderr
    # Discovery and the published schema follow a moment after Established.
    wait_until(
        lambda: all(kubectl(*ask).returncode == 0 for ask in (("get", "rtp"), ("explain", "rtp.spec"))),
        what="kubectl knows RuntimeProfiles and their fields",
        seconds=30,
    )


@pytest.fixture(scope="session")
def installed(crd: None, kubectl: Callable[..., subprocess.CompletedProcess[str]], plane: ControlPlane) -> None:
    """The namespace, the rights and the fence that we ship."""
    deploy = Path(__file__).parents[2] / "deploy" / "base"
    for name in ("namespace.yaml", "rbac.yaml", "admission.yaml"):
        done = kubectl("apply", "-f", str(deploy / name))
        assert done.returncode == 0, done.stderr
    plane.vacate()


@pytest.fixture(scope="session")
def account(installed: None, plane: ControlPlane) -> Path:
    """A kubeconfig of the shipped ServiceAccount."""
    return plane.service_account_kubeconfig("clusterconform-system", "clusterconform")


@pytest.fixture
def world(plane: ControlPlane, installed: None) -> Iterator[World]:
    """The cluster as a test sees it; nodes and profiles that the test made are removed after it."""
    world = World(plane)
    profiles = {item["metadata"]["name"] for item in plane.admin.get(PROFILES)["items"]}
    nodes = {item["metadata"]["name"] for item in plane.admin.get(NODES)["items"]}
    yield world
    for item in plane.admin.get(NODES)["items"]:
        if item["metadata"]["name"] not in nodes:
            world.delete(f"{NODES}/{item['metadata']['name']}")
    for item in plane.admin.get(PROFILES)["items"]:
        if profiles and item["metadata"]["name"] not in profiles:
            world.delete(f"{PROFILES}/{item['metadata']['name']}")


@pytest.fixture
def bare(builder: Builder) -> Iterator[ControlPlane]:
    """A control plane of a test's own: no controllers, nothing of ours."""
    with ControlPlane(builder, audit=True) as plane:
        yield plane


@pytest.fixture
def stage(builder: Builder) -> Iterator[Stage]:
    """A control plane of a test's own, with everything of ours and a fleet that can die."""
    with staged(builder) as staging:
        yield staging
