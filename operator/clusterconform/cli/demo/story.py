"""The demo from beginning to end. Each step begins as soon as the parts that it needs are there."""

from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import RenderableType
from rich.text import Text

from clusterconform.cli.demo import death, profiles, stay
from clusterconform.cli.demo.acts import HEAL_SECONDS, Act, Outcome, perform, taints_of, three_acts
from clusterconform.cli.demo.board import Board, about
from clusterconform.cli.demo.death import Death
from clusterconform.cli.demo.kubectl import Kubectl
from clusterconform.cli.demo.population import STOCK_BACKEND, STOCK_NODE, Population, populate
from clusterconform.cli.demo.profiles import Observer, Row
from clusterconform.cli.demo.reach import Reach
from clusterconform.cli.demo.screen import Screen
from clusterconform.cli.demo.world import ACCOUNT, Operator, install, locate, start_operator
from clusterconform.contract.names import BACKEND_LABEL, HOST_LABEL, PROVIDER_TAINT_KEY, RUNTIME_LABEL
from clusterconform.effects.clock import Clock
from clusterconform.sandbox.builder import Builder
from clusterconform.sandbox.command_lines import NodeLifecycle
from clusterconform.sandbox.control_plane import ControlPlane
from clusterconform.sandbox.fleet import Fleet
from clusterconform.sandbox.parts import ETCD, KWOK, NEWEST, VIRTUAL_KUBELET, Kubernetes, Part
from clusterconform.sandbox.programs import Program
from clusterconform.sandbox.waiting import wait_until

_CHECK_SECONDS: Final = 0.5
# A condition becomes True after ten clean seconds, and a profile's status follows within five more.
_SETTLED_SECONDS: Final = 120.0
_TOLD_SECONDS: Final = 30.0
_PAUSE_SECONDS: Final = 0.2
# A silent node is missed after 25 s instead of 50, so that the last act is shorter.
_IMPATIENT: Final = NodeLifecycle(monitor_period=1, monitor_grace_period=25)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What the user asked for.

    Attributes:
        nodes: how many nodes.
        once: end after the acts.
        assets: a directory with ready programs, or None.
        kubeconfig: where else to write the administrator's kubeconfig, or None.
        kubernetes: the version of the control plane and of the real kubelet.
    """

    nodes: int
    once: bool = False
    assets: Path | None = None
    kubeconfig: Path | None = None
    kubernetes: Kubernetes = NEWEST


def parts(kubernetes: Kubernetes) -> tuple[Part, ...]:
    """The parts in the order in which they are needed: the operator is at work long before the last."""
    return (
        ETCD,
        kubernetes.api_server,
        kubernetes.controller_manager,
        KWOK,
        kubernetes.kubelet,
        VIRTUAL_KUBELET,
    )


def play(wishes: Wishes, screen: Screen) -> str:
    """Give the demo; whatever it started is ended and removed when this returns or raises.

    Returns:
        Why it failed, as one sentence; empty if every act came to its end.

    Raises:
        PartUnavailable: a part is nowhere and cannot be built.
        SandboxFailed, ProgramEnded: something ended, or was not ready in time.
        ShippedFileMissingError: a file of this program is not there.
        RequestRefused, OSError: the API server refused what the demo wrote, or this machine did.
    """
    with ExitStack() as stack:
        board = Board(parts(wishes.kubernetes), screen.say)
        builder = stack.enter_context(_builder(wishes, board))
        plane = ControlPlane(builder)
        stack.callback(plane.stop)
        demo = Demo(wishes, screen, board, plane)
        locate()  # before minutes of building, not after them
        with screen:
            demo.open()
            failure = demo.perform()
        if not wishes.once:
            # Ctrl-C is the way out that was asked for here; anything else goes through.
            with suppress(KeyboardInterrupt):
                demo.stay()
        return failure


def build(wishes: Wishes, screen: Screen) -> str:
    """Build every part that is missing, with progress, and start none. Raises as ``play``."""
    with ExitStack() as stack:
        wanted = wishes.kubernetes.parts
        board = Board(wanted, screen.say)
        builder = stack.enter_context(_builder(wishes, board))
        screen.picture(board.rows, board.sentence)
        with screen:
            board.expect(part for part in wanted if builder.find(part) is None)
            if outline := board.outline():
                screen.say(outline)
            for future in builder.start(wanted).values():
                future.result()
    return ""


def _builder(wishes: Wishes, board: Board) -> Builder:
    return Builder(assets=wishes.assets, kubernetes=wishes.kubernetes, report=board.hear)


class Demo:
    """One performance on a control plane."""

    def __init__(self, wishes: Wishes, screen: Screen, board: Board, plane: ControlPlane) -> None:
        """Prepare; nothing is built or started yet."""
        self._wishes, self._screen, self._board, self._plane = wishes, screen, board, plane
        self._kubernetes = wishes.kubernetes
        self._futures: Mapping[Part, Future[Path]] = {}
        self._programs: list[Program] = []
        self._observer: Observer | None = None
        self._acting = False
        self._operator: Operator
        self._fleet: Fleet
        self._kubectl: Kubectl
        self._population: Population = populate(wishes.nodes, now=Clock().moment().wall)
        screen.picture(self._scene, board.sentence)

    def open(self) -> None:
        """Bring everything up, in the order in which the parts arrive, until the fleet conforms."""
        builder, wanted = self._plane.builder, parts(self._kubernetes)
        self._screen.heading(
            f"A Kubernetes {self._kubernetes.minor} control plane, {self._wishes.nodes} nodes and the operator, "
            "all on this machine; everything is removed at the end."
        )
        with self._screen.doing("looking for the parts"):
            self._board.expect(part for part in wanted if builder.find(part) is None)
        if outline := self._board.outline():
            self._screen.say(outline)
            first = about(self._board.seconds_left(self._kubernetes.api_server))
            self._screen.add(f"The operator is at work after the first of them ({first}); the rest follows.")
        self._futures = builder.start(wanted)
        self._open_api()
        self._open_operator()
        self._open_fleet()
        self._settle()

    def perform(self) -> str:
        """Play the acts; say in one sentence what did not come to pass, or nothing."""
        self._acting = True
        virtual = self._population.virtual_names
        played = three_acts(self._population.hollow, virtual[1], virtual[2])
        self._screen.heading("Three acts of drift, each a plain write as kubectl makes it; the operator heals.")
        outcomes = [(act, self._act(number, act)) for number, act in enumerate(played, start=1)]
        failure = shortfall(outcomes)
        if not failure:
            times = ", ".join(f"{outcome.milliseconds:.0f}" for _, outcome in outcomes)
            self._screen.heading(f"All {len(outcomes)} acts were healed, after {times} ms.")
        elif not self._wishes.once:
            self._screen.heading(failure)
        agents = [node["metadata"]["name"] for node in self._population.agents]
        last = Death(self._screen, self._plane, self._fleet, self._operator, self._kubectl)
        failure = failure or last.play(len(played) + 1, agents).failure
        reach = Reach(self._screen, self._plane, self._fleet, self._operator, self._kubectl)
        return failure or reach.play(len(played) + 2, virtual[0]).failure

    def stay(self) -> None:
        """Tell what can be tried, and follow the operator's log until a signal ends it."""
        agent, virtual = self._population.agents[0]["metadata"]["name"], self._population.virtual_names[0]
        stay.tell(self._screen, self._kubectl, self._operator, agent=agent, virtual=virtual)
        stay.follow(self._screen, self._operator, self._programs)

    def _open_api(self) -> None:
        self._await(ETCD, self._kubernetes.api_server)
        plane, screen = self._plane, self._screen
        with screen.doing("starting etcd and kube-apiserver, about 10 s"):
            plane.start()
            self._programs += plane.programs.running
        screen.say(f"kube-apiserver answers at {plane.server}")
        self._kubectl = Kubectl.of(plane, self._wishes.kubeconfig)
        with screen.doing("applying the kind RuntimeProfile, the operator's rights and its fence"):
            names = install(plane)
        screen.say(f"applied {', '.join(names)}")

    def _open_operator(self) -> None:
        plane, screen = self._plane, self._screen
        with screen.doing("starting the operator, about 5 s"):
            self._operator = start_operator(plane)
            self._programs.append(self._operator.program)
            seeded = profiles.read_rows(plane.admin)
        screen.say(f"the operator runs as {ACCOUNT}, with --bound enforce")
        screen.say(f"it has seeded the profiles {', '.join(row.name for row in seeded)}")
        self._observer = Observer(plane.admin, self._profiles_changed)
        plane.at_end(self._observer.close)

    def _open_fleet(self) -> None:
        plane, screen, people = self._plane, self._screen, self._population
        fleet = self._fleet = Fleet(plane)
        with screen.doing("creating virtual nodes"):
            fleet.create_nodes([*people.virtual, *death.dead(now=Clock().moment().wall)])
            fleet.heartbeats.keep(people.virtual_names)
        screen.say(
            f"{len(people.virtual)} virtual nodes are there, one of them without its taint; and two dead ones, "
            f"{death.AGENT} and {death.TWIN}"
        )
        self._await(self._kubernetes.controller_manager)
        with screen.doing("starting kube-controller-manager, about 5 s"):
            self._programs.append(plane.start_controller_manager(_IMPATIENT))
        screen.say("kube-controller-manager runs")
        self._await(KWOK)
        with screen.doing("starting kwok and creating agents"):
            self._programs.append(fleet.start_kwok())
            fleet.create_nodes(people.agents)
        screen.say(
            f"{len(people.agents)} agents are there, kept alive by kwok, {people.unlabelled} of them without "
            "their runtime label"
        )
        self._await(self._kubernetes.kubelet)
        with screen.doing("starting a real kubelet, about 5 s"):
            kubelet = fleet.start_hollow_kubelet(
                people.hollow, labels=people.hollow_labels, annotations=people.hollow_annotations
            )
            self._programs.append(kubelet)
        screen.say(f"{people.hollow} is there: a real kubelet, without containers")
        self._await(VIRTUAL_KUBELET)
        with screen.doing("starting a stock virtual-kubelet, about 5 s"):
            self._programs.append(fleet.start_virtual_kubelet(STOCK_NODE))
            plane.admin.patch(
                f"/api/v1/nodes/{STOCK_NODE}", {"metadata": {"labels": {BACKEND_LABEL: STOCK_BACKEND}}}
            )
        screen.say(
            f"{STOCK_NODE} is there: virtual-kubelet as upstream builds it; this demo has put "
            f"{BACKEND_LABEL}={STOCK_BACKEND} on it"
        )

    def _settle(self) -> None:
        people = self._population
        with self._screen.doing("waiting for all conditions (True after 10 s without drift), about 15 s"):
            wait_until(
                self._settled,
                what="the fleet conforms",
                seconds=_SETTLED_SECONDS,
                programs=self._programs,
                pause=_PAUSE_SECONDS,
            )
        self._screen.say(
            f"{len(self._operator.repaired())} nodes were repaired on arrival; RuntimeConformant is True on "
            f"{len(people.conforming)} nodes",
            style="green",
        )
        self._tell_stock()
        self._show_profiles()

    def _tell_stock(self) -> None:
        """Say what was found on the stock virtual-kubelet: marks to correct, and what no mark corrects."""
        node = self._plane.admin.get(f"/api/v1/nodes/{STOCK_NODE}")
        labels, found = node["metadata"]["labels"], profiles.condition_of(node)
        taint = next(seen for seen in taints_of(node) if seen["key"] == PROVIDER_TAINT_KEY)
        self._screen.say(
            f"on {STOCK_NODE} the operator has put the labels runtime={labels.get(RUNTIME_LABEL)} and "
            f"host={labels.get(HOST_LABEL)}, and set its taint to {taint['value']} (was mock)"
        )
        self._screen.add(
            f"RuntimeConformant is {found.status} there ({found.reason}): {found.message}. It does: "
            "virtual-kubelet as upstream builds it offers a kubelet API, which the contract denies to "
            "virtual nodes; only its own settings could end that",
            style="yellow",
        )

    def _settled(self) -> bool:
        conditions = profiles.read_conditions(self._plane.admin)
        true = {name for name, condition in conditions.items() if condition.status == "True"}
        stock = conditions.get(STOCK_NODE, profiles.Condition())
        return true == self._population.conforming and stock.status == "False" and self._counted()

    def _counted(self) -> bool:
        """Whether the profiles' status says what there is: all nodes, and one that does not conform."""
        rows = profiles.read_rows(self._plane.admin)
        return sum(row.nodes or 0 for row in rows) == self._wishes.nodes and sum(
            row.conformant or 0 for row in rows
        ) == len(self._population.conforming)

    def _act(self, number: int, act: Act) -> Outcome:
        screen = self._screen
        screen.heading(f"{number}. {act.title}")
        screen.add(self._kubectl.short(*act.command), title="write")
        with screen.doing(f"waiting for the repair, at most {HEAL_SECONDS:g} s"):
            outcome = perform(act, self._plane, self._operator.log)
        if outcome.milliseconds is None:
            self._operator.program.check()
            screen.say(f"not repaired within {HEAL_SECONDS:g} s", style="red")
            return outcome
        screen.add(outcome.line or "(its log has no line about it)", title="operator")
        screen.say(
            f"repaired {outcome.milliseconds:.0f} ms after the API server accepted the drift", style="green"
        )
        with screen.doing("waiting for the profiles' status, at most 5 s"):
            wait_until(self._counted, what="the profiles count it", seconds=_TOLD_SECONDS, pause=_PAUSE_SECONDS)
        screen.say(f"the profiles count it too: {profiles.clause(profiles.read_rows(self._plane.admin))}")
        screen.add(f"RuntimeConformant on the node: {outcome.condition.status} ({outcome.condition.reason})")
        return outcome

    def _show_profiles(self) -> None:
        self._screen.quote("\n" + self._kubectl.line("get", "rtp"), style="dim")
        self._screen.quote(profiles.table(profiles.read_rows(self._plane.admin)))

    def _await(self, *parts: Part) -> None:
        """Wait for parts, and meanwhile for what runs to go on running.

        Raises:
            PartUnavailable: one of them is nowhere and cannot be built.
            ProgramEnded: a program of the sandbox has ended.
        """
        futures = [self._futures[part] for part in parts]
        with self._screen.doing(f"waiting for {' and '.join(part.name for part in parts)}"):
            while not all(_is_there(future) for future in futures):
                wait(futures, timeout=_CHECK_SECONDS, return_when=FIRST_EXCEPTION)
                for program in self._programs:
                    program.check()

    def _scene(self) -> list[RenderableType]:
        rows = self._observer.rows if self._observer else []
        return [*([Text(), profiles.table(rows)] if rows else []), *self._board.rows()]

    def _profiles_changed(self, rows: list[Row]) -> None:
        if not self._screen.lively and not self._acting and (clause := profiles.clause(rows)):
            self._screen.say(f"conformant so far: {clause}")


def shortfall(outcomes: Sequence[tuple[Act, Outcome]]) -> str:
    """Say in one sentence which acts were not healed; nothing if all were."""
    lost = [act.node for act, outcome in outcomes if outcome.milliseconds is None]
    if not lost:
        return ""
    healed = len(outcomes) - len(lost)
    return (
        f"Only {healed} of {len(outcomes)} acts were healed within {HEAL_SECONDS:g} s each; "
        f"still drifted: {', '.join(lost)}."
    )


def _is_there(future: Future[Path]) -> bool:
    """Whether a part is there; raises if it never will be."""
    if not future.done():
        return False
    future.result()
    return True
