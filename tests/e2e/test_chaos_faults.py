"""The operator while everything around it breaks: API server, storage, watches, answers, its own objects.

After each fault: nobody was deleted, nothing was written without need, what drifted since is repaired, and the
status is told anew (``Scene.unharmed``). One control plane and one operator for all of them.
"""

import itertools
import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from chaos_stage import (
    CRD,
    LEDGER,
    STATE,
    Scene,
    but_the_lease,
    chaotic,
    is_marks,
    of_lease,
    of_nodes,
)
from docs_blocks import block
from operators import NODES, PROFILES
from proxy import Exchange, Matches, Reply, When
from shell import Shell

from clusterconform.contract.lease import LEASE_PATH
from clusterconform.sandbox.builder import Builder

GONE: Final = Reply(410, "Expired")
FAILED: Final = Reply(500, "InternalError")


@pytest.fixture(scope="module")
def scene(builder: Builder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with chaotic(builder, tmp_path_factory.mktemp("chaos")) as scene:
        yield scene


@pytest.fixture(scope="module")
def ripe(scene: Scene) -> Scene:
    """With agents that nothing holds but the spent budget."""
    scene.ripen()
    return scene


def is_watch_of(path: str) -> Matches:
    return lambda exchange: exchange.is_watch and exchange.path == path


def is_status(exchange: Exchange) -> bool:
    """A write of a profile's status."""
    return exchange.method == "PATCH" and exchange.path.startswith(f"{PROFILES}/")


# --- memory ------------------------------------------------------------------------------------------------


def cut(scene: Scene) -> None:
    scene.proxy.cut_watches()


def expire(scene: Scene) -> None:
    scene.proxy.expire_watches()


def storm(scene: Scene) -> None:
    with scene.proxy.answering(but_the_lease, FAILED) as fault:
        scene.proxy.cut_watches()
        scene.world.until(lambda: fault.met >= 8, "the storm is felt")


CHEAP: Final = (cut, expire, storm)
# The first faults make the program load what it has never needed before.
WARM: Final = 6
SAMPLES: Final = 5


def growth(scene: Scene, faults: tuple[Callable[[Scene], None], ...], cycles: int) -> float:
    """By how much of its level the operator's memory grows over so many faults.

    A level is the median of the resident memory after each of five faults in a row: single ones stand out while
    a list is being read, or when the kernel takes pages back; a leak lifts them all.
    """
    seen, warm = list[int](), max(WARM, len(faults))
    for fault in itertools.islice(itertools.cycle(faults), warm + cycles):
        fault(scene)
        scene.newcomer()
        seen.append(scene.process.resident())
    before, after = seen[warm - SAMPLES : warm], seen[-SAMPLES:]
    grown = statistics.median(after) / statistics.median(before) - 1
    print(f"resident memory after each fault, in KiB: {seen}; grown by {grown:.1%}")  # noqa: T201 - shown when it fails
    return grown


def test_memory_is_back_at_its_level_after_ten_faults(scene: Scene) -> None:
    assert growth(scene, CHEAP, 10) <= 0.05
    scene.check()


def gone_as_status(scene: Scene) -> None:
    for path in (NODES, PROFILES):
        scene.proxy.answer(is_watch_of(path), GONE)
    scene.proxy.cut_watches()


def restart_api_server(scene: Scene) -> None:
    scene.plane.kill_api_server()
    scene.plane.start_api_server()


def restart_storage(scene: Scene) -> None:
    scene.plane.kill_etcd()
    scene.plane.start_etcd()
    scene.world.until(lambda: scene.plane.admin.answers("/readyz"), "the API server is ready", seconds=60)


def freeze(scene: Scene) -> None:
    scene.proxy.freeze()
    scene.proxy.cut_watches()  # or each cycle would last for as long as a watch may be silent


def refuse(scene: Scene) -> None:
    scene.proxy.answer(is_marks, Reply(429, "TooManyRequests", {"Retry-After": "1"}))


def slow_down(scene: Scene) -> None:
    scene.proxy.cut_watches()
    with scene.proxy.slow(but_the_lease, 0.3):
        scene.until_passed()


@contextmanager
def broken_lists(scene: Scene, reply: Reply) -> Iterator[Callable[[], int]]:
    """Lists of nodes that come in pages of five and fail on the last one; tells how often they did."""
    scene.proxy.page = 5
    try:
        with scene.proxy.answering(
            lambda exchange: of_nodes(exchange) and exchange.is_last_page, reply, when=When.AFTER
        ) as fault:
            yield lambda: fault.met
    finally:
        scene.proxy.page = None


def break_lists(scene: Scene) -> None:
    with broken_lists(scene, FAILED) as failed:
        scene.proxy.expire_watches(of_nodes)
        scene.world.until(lambda: failed() >= 1, "a list has failed")


def lose_ledger(scene: Scene) -> None:
    scene.plane.admin.delete(LEDGER)
    scene.until_passed()


ALL: Final = (
    *CHEAP,
    gone_as_status,
    restart_api_server,
    restart_storage,
    freeze,
    refuse,
    slow_down,
    break_lists,
    lose_ledger,
)
# No outage costs the leader its place: a process that begins anew begins with new memory.
LONG_LEASE: Final = ("--lease-duration", "300s", "--renew-deadline", "240s", "--retry-period", "500ms")


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_memory_is_back_at_its_level_after_a_hundred_faults_of_every_kind(
    builder: Builder, tmp_path: Path
) -> None:
    with chaotic(builder, tmp_path, lease=LONG_LEASE) as scene:
        assert growth(scene, ALL, 100) <= 0.05
        assert not scene.process.said("lost leadership")
        scene.forgive()
        scene.check()


# --- the API server and its storage ------------------------------------------------------------------------


def test_an_api_server_that_is_killed_and_comes_back(ripe: Scene) -> None:
    with ripe.unharmed() as name:
        ripe.plane.kill_api_server()
        ripe.plane.start_api_server()
        ripe.drift(name)
        ripe.until_repaired(name)
        ripe.forgive()


def test_a_storage_that_is_killed_and_comes_back_after_leadership_was_lost(ripe: Scene) -> None:
    lost = len(ripe.process.said("lost leadership"))
    with ripe.unharmed():
        ripe.plane.kill_etcd()
        try:
            ripe.world.until(lambda: len(ripe.process.said("lost leadership")) > lost, "leadership is lost")
        finally:
            ripe.plane.start_etcd()
            ripe.world.until(lambda: ripe.plane.admin.answers("/readyz"), "the API server is ready", seconds=60)
        ripe.expel()
        ripe.world.until(lambda: ripe.process.metric("clusterconform_leader") == 1, "it leads again", seconds=60)


# --- watches -----------------------------------------------------------------------------------------------


def test_watches_that_are_cut_are_opened_again(ripe: Scene) -> None:
    with ripe.unharmed():
        opened = len(ripe.proxy.watched)
        ripe.proxy.cut_watches()
        ripe.world.until(
            lambda: {NODES, PROFILES} <= {watch.path for watch in ripe.proxy.watched[opened:]},
            "they are watched again",
        )


def gone_as_event(scene: Scene) -> None:
    scene.proxy.expire_watches()


@pytest.mark.parametrize("gone", [gone_as_event, gone_as_status])
def test_after_a_410_of_a_watch_everything_is_listed_again(ripe: Scene, gone: Callable[[Scene], None]) -> None:
    with ripe.unharmed():
        begun = len(ripe.proxy.exchanges)
        gone(ripe)
        for path in (NODES, PROFILES):
            ripe.world.until(
                lambda path=path: path in {one.path for one in ripe.proxy.exchanges[begun:]},  # type: ignore[misc]
                f"{path} is listed again",
            )


# --- answers -----------------------------------------------------------------------------------------------


def test_no_request_of_a_kind_is_sent_before_the_time_that_a_429_asks_for(ripe: Scene) -> None:
    kinds: Mapping[str, tuple[Matches, int]] = {
        "marks": (is_marks, 4),
        "status": (is_status, 8),
        "lease": (lambda exchange: of_lease(exchange) and exchange.method == "PUT", 3),
        "watch": (is_watch_of(NODES), 3),
    }
    with ripe.unharmed() as name:
        begun = len(ripe.proxy.exchanges), len(ripe.proxy.watched)
        for matches, seconds in kinds.values():
            ripe.proxy.answer(matches, Reply(429, "TooManyRequests", {"Retry-After": str(seconds)}))
        ripe.drift(name)
        ripe.until_repaired(name)
        ripe.proxy.cut_watches(of_nodes)
        ripe.until_passed()

        def asked(matches: Matches) -> list[Exchange]:
            since = [*ripe.proxy.exchanges[begun[0] :], *ripe.proxy.watched[begun[1] :]]
            return [exchange for exchange in since if matches(exchange)]

        for kind, (matches, seconds) in kinds.items():
            ripe.world.until(lambda matches=matches: len(asked(matches)) >= 2, f"{kind}: it is tried again")  # type: ignore[misc]
            first, second = asked(matches)[:2]
            assert first.status == 0, kind
            assert second.at - first.at >= seconds, kind


def test_a_storm_of_500s_passes_and_leaves_nothing_behind(ripe: Scene) -> None:
    with ripe.unharmed() as name, ripe.proxy.answering(but_the_lease, FAILED) as fault:
        ripe.proxy.cut_watches()
        ripe.drift(name)
        ripe.world.until(lambda: fault.met >= 20, "the storm is felt", seconds=60)
        assert ripe.world.labels(name)["runtime"] == "agent"


def test_while_every_answer_is_slow_the_work_goes_on(ripe: Scene) -> None:
    with ripe.unharmed() as name, ripe.proxy.slow(lambda _: True, 1.0, when=When.BEFORE):
        ripe.proxy.cut_watches()
        ripe.drift(name)
        ripe.until_repaired(name)


def test_a_write_whose_answer_is_too_slow_is_not_done_twice(ripe: Scene) -> None:
    with ripe.unharmed() as name, ripe.proxy.slow(is_marks, 12.0) as fault:
        ripe.drift(name)
        ripe.until_repaired(name)
        ripe.world.until(lambda: bool(ripe.process.said("write failed", node=name)), "the answer is given up")
        assert fault.met == 1


@pytest.mark.parametrize("reply", [FAILED, GONE], ids=["500", "410"])
def test_a_list_that_fails_on_its_last_page_takes_no_node_for_gone(ripe: Scene, reply: Reply) -> None:
    known = ripe.process.metric("clusterconform_nodes")
    assert known == len(ripe.present())
    with ripe.unharmed(), broken_lists(ripe, reply) as failed:
        ripe.proxy.expire_watches(of_nodes)
        ripe.world.until(lambda: failed() >= 2, "lists have failed", seconds=60)
        ripe.until_passed()
        assert ripe.process.metric("clusterconform_nodes") == known


def test_an_operator_whose_first_list_fails_on_its_last_page_writes_to_no_node(ripe: Scene) -> None:
    with ripe.unharmed() as name:
        with broken_lists(ripe, FAILED) as failed:
            ripe.restart(lambda: ripe.drift(name), ready=False)
            waits = "nothing is written until nodes and profiles are known"
            ripe.world.until(lambda: bool(ripe.process.said(waits)), "it says that it waits", seconds=60)
            ripe.world.until(lambda: failed() >= 3, "lists have failed", seconds=60)
            assert ripe.process.get("/readyz")[0] == 503
            assert ripe.world.labels(name)["runtime"] == "agent"
        ripe.process.await_ready()


# --- our own objects ---------------------------------------------------------------------------------------


def test_what_the_page_says_to_look_at_first_tells_who_leads(ripe: Scene, tmp_path: Path) -> None:
    looked = Shell(ripe.plane.kubeconfig, tmp_path).run(block("docs/faults.md", "clusterconform status"))
    holder = ripe.plane.admin.get(LEASE_PATH)["spec"]["holderIdentity"]
    assert f"holderIdentity: {holder}" in looked
    assert looked.count(holder) >= 2, "status names it too"


def test_profiles_are_watched_again_after_their_crd_was_deleted_and_made_again(
    ripe: Scene, tmp_path: Path
) -> None:
    world, admin = ripe.world, ripe.plane.admin
    marked = len([entry for entry in ripe.writes() if "subresource" not in entry["objectRef"]])
    name = next(ripe.drifters)
    world.delete(CRD)
    world.until(lambda: world.condition(name) == ("Unknown", "NotEnforced"), "no profile acts", seconds=60)
    world.until(lambda: bool(ripe.process.said("the watches failed")), "there is nothing to watch", seconds=60)
    opened = len(ripe.proxy.watched)
    world.until(
        lambda: any(of_nodes(watch) for watch in ripe.proxy.watched[opened:]),
        "nodes are watched alone",
        seconds=60,
    )
    shell = Shell(ripe.plane.kubeconfig, tmp_path)
    shell.run(block("docs/faults.md", "kubectl apply -f crds/runtimeprofiles.yaml"))
    ripe.configure()
    world.until(ripe.is_settled, "all nodes conform again", seconds=120)
    assert len([entry for entry in ripe.writes() if "subresource" not in entry["objectRef"]]) == marked
    with ripe.unharmed():
        edited = admin.patch(f"{PROFILES}/k3s", {"spec": {"nodeGC": {**ripe.settings, "interval": "11s"}}})
        world.until(
            lambda: world.profile("k3s")["status"]["observedGeneration"] == edited["metadata"]["generation"],
            "an edit is seen at once",
        )


def test_a_ledger_that_is_deleted_gives_nobody_a_new_budget(ripe: Scene) -> None:
    with ripe.unharmed():
        ripe.plane.admin.delete(LEDGER)
        ripe.until_passed()
        assert not ripe.world.gone(LEDGER)
        assert ripe.held() == ["BudgetSpent"] * len(ripe.held()) != []
        ripe.restart()  # the next leader has nothing but the new ledger
        ripe.until_passed()
        assert ripe.allowed() == ("False", "BudgetSpent")


def test_a_state_that_is_deleted_seeds_no_profile_again(ripe: Scene) -> None:
    ripe.plane.admin.delete(f"{PROFILES}/vk-ollama")
    with ripe.unharmed():
        ripe.plane.admin.delete(STATE)
        ripe.until_passed()
    with ripe.unharmed():
        ripe.restart()
        assert not ripe.world.gone(STATE)
        assert ripe.world.gone(f"{PROFILES}/vk-ollama")
