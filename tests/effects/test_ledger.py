"""The ledger in its ConfigMap: whose it is, how old it says it is, and who may write over it."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from builders import START
from effects_api import CONFIGMAPS, FakeApi, Reply, Sent, refusal, reply
from effects_cluster import FakeCluster
from effects_time import in_virtual_time, run_virtually

from clusterconform.contract.asks import Failed, LedgerText, Trouble
from clusterconform.contract.lease import Term
from clusterconform.contract.names import (
    FIRST_LEDGER_KEY,
    LEDGER_COMPLETE_KEY,
    LEDGER_CONFIGMAP,
    LEDGER_KEY,
    STATE_CONFIGMAP,
    TERM_KEY,
    TRUST_KEY,
)
from clusterconform.contract.times import format_time
from clusterconform.effects.errors import ApiError, ConflictError
from clusterconform.effects.ledger import Ledger
from clusterconform.effects.metrics import Metrics

Json = dict[str, Any]

PATH, STATE = f"{CONFIGMAPS}/{LEDGER_CONFIGMAP}", f"{CONFIGMAPS}/{STATE_CONFIGMAP}"
FIRST, SECOND = (Term(number=number, holder=f"holder-{number}", uid="lease") for number in (1, 2))
BORN = format_time(START)
LINE, TRUST = '{"at":"2026-08-01T12:00:00Z","event":"intended"}\n', '{"seconds":7.0,"cause":null}'


class CrashError(Exception):
    """The process is killed."""


def installed(more: Mapping[str, str] | None = None, *, first: bool = True, text: str | None = None) -> FakeApi:
    """A cluster after seeding: one whose first ledger is yet to be made, or one that has a ledger of ``text``."""
    api = FakeApi()
    new = {FIRST_LEDGER_KEY: "true"} if first else {}
    api.put(CONFIGMAPS, {"metadata": {"name": STATE_CONFIGMAP}, "data": {"seeded": "k3s", **new}})
    if text is not None:
        metadata = {"name": LEDGER_CONFIGMAP, "creationTimestamp": BORN}
        api.put(CONFIGMAPS, {"metadata": metadata, "data": {LEDGER_KEY: text, **(more or {})}})
    return api


def stamped(api: FakeApi) -> FakeApi:
    """``api`` with a creation time on each new ledger, as the API server puts it there."""

    def stamp(sent: Sent) -> None:
        if (sent.method, sent.path) == ("POST", CONFIGMAPS):
            sent.body["metadata"]["creationTimestamp"] = BORN

    api.before = stamp
    return api


def ledger(api: FakeApi, term: Term = FIRST, fence: Callable[[float], bool] = lambda _: True) -> Ledger:
    """The ledger as the leader of ``term`` holds it."""
    return Ledger(FakeCluster(api, Metrics(), fence), term)


async def claimed(api: FakeApi, term: Term = FIRST) -> Ledger:
    """A ledger that was claimed and read."""
    held = ledger(api, term)
    await held.claim()
    read = await held.read()
    assert isinstance(read, LedgerText), read
    return held


def data(api: FakeApi) -> dict[str, str]:
    """What the ledger's ConfigMap holds."""
    held: dict[str, str] = api.get(CONFIGMAPS, LEDGER_CONFIGMAP)["data"]
    return held


def edit(api: FakeApi, **changed: str) -> None:
    """Somebody edits the ledger by hand."""
    api.change(CONFIGMAPS, LEDGER_CONFIGMAP, lambda raw: raw["data"].update(changed))


def label(api: FakeApi) -> None:
    """Somebody labels the ledger."""
    api.change(CONFIGMAPS, LEDGER_CONFIGMAP, lambda raw: raw["metadata"].update(labels={"team": "ops"}))


# --- how old it is -----------------------------------------------------------------------------------------


@in_virtual_time
async def test_the_first_ledger_of_an_installation_is_complete_from_its_beginning() -> None:
    api = stamped(installed())
    held = ledger(api)
    await held.claim()
    assert await held.read() == LedgerText(text="", trust=None, created_at=None)
    assert data(api) == {TERM_KEY: "1/holder-1/lease", LEDGER_KEY: "", LEDGER_COMPLETE_KEY: "true"}


@in_virtual_time
async def test_that_it_is_yet_to_be_made_is_taken_out_of_the_state_before_it_is_made() -> None:
    api = installed()
    await ledger(api).claim()
    assert [(sent.method, sent.path) for sent in api.writes()] == [("PUT", STATE), ("POST", CONFIGMAPS)]
    assert api.get(CONFIGMAPS, STATE_CONFIGMAP)["data"] == {"seeded": "k3s"}


@in_virtual_time
async def test_a_ledger_that_was_deleted_is_made_anew_and_says_since_when() -> None:
    api = stamped(installed())
    await claimed(api)
    api.remove(CONFIGMAPS, LEDGER_CONFIGMAP)
    held = await claimed(api, SECOND)
    assert await held.read() == LedgerText(text="", trust=None, created_at=START)
    assert LEDGER_COMPLETE_KEY not in data(api)


@in_virtual_time
async def test_one_that_is_deleted_while_we_lead_is_made_anew_by_the_next_read() -> None:
    api = stamped(installed())
    held = await claimed(api)
    assert await held.swap(LINE, TRUST) is None
    api.remove(CONFIGMAPS, LEDGER_CONFIGMAP)
    assert await held.read() == LedgerText(text="", trust=None, created_at=START)


@pytest.mark.parametrize("state", ["absent", "without data", "false", "another word"])
@in_virtual_time
async def test_without_a_word_in_the_state_a_new_ledger_is_not_complete(state: str) -> None:
    api = stamped(installed(first=False))
    if state == "absent":
        api.remove(CONFIGMAPS, STATE_CONFIGMAP)
    elif state == "without data":
        api.change(CONFIGMAPS, STATE_CONFIGMAP, lambda raw: raw.pop("data"))
    else:
        api.change(CONFIGMAPS, STATE_CONFIGMAP, lambda raw: raw["data"].update({FIRST_LEDGER_KEY: state}))
    held = await claimed(api)
    read = await held.read()
    assert isinstance(read, LedgerText)
    assert read.created_at == START


@pytest.mark.parametrize(
    ("at", "answered", "complete"),
    [
        (("PUT", STATE), False, True),
        (("PUT", STATE), True, False),
        (("POST", CONFIGMAPS), False, False),
        (("POST", CONFIGMAPS), True, True),
    ],
    ids=["before the state", "after the state", "before the ledger", "after the ledger"],
)
def test_a_crash_on_the_way_to_the_first_ledger_costs_a_window_and_forges_no_age(
    at: tuple[str, str], *, answered: bool, complete: bool
) -> None:
    """What a crash after the state leaves cannot be told from a ledger that somebody deleted."""
    api = stamped(installed())
    stamp = api.before

    def crash(sent: Sent) -> None:
        stamp(sent)
        if (sent.method, sent.path) == at:
            raise CrashError

    if answered:
        api.after = crash
    else:
        api.before = crash
    with pytest.raises(CrashError):
        run_virtually(ledger(api).claim())
    api.before, api.after = stamp, lambda _: None

    async def next_leader() -> LedgerText | Failed:
        return await (await claimed(api, SECOND)).read()

    read = run_virtually(next_leader())
    assert isinstance(read, LedgerText)
    assert (read.created_at is None) is complete


@in_virtual_time
async def test_an_age_that_cannot_be_read_is_no_ledger_at_all() -> None:
    api = installed(first=False, text="")
    held = await claimed(api)
    for odd in ("", "yesterday", None):
        api.change(
            CONFIGMAPS,
            LEDGER_CONFIGMAP,
            lambda raw, odd=odd: raw["metadata"].update(creationTimestamp=odd),  # type: ignore[misc]
        )
        assert isinstance(await held.read(), Failed)


# --- whose it is -------------------------------------------------------------------------------------------


@in_virtual_time
async def test_a_claim_writes_our_term_and_leaves_everything_else() -> None:
    api = installed({TERM_KEY: "another", TRUST_KEY: TRUST, "note": "of a person"}, text=LINE)
    held = await claimed(api, SECOND)
    expected = {LEDGER_KEY: LINE, TRUST_KEY: TRUST, "note": "of a person", TERM_KEY: "2/holder-2/lease"}
    assert data(api) == expected
    assert await held.read() == LedgerText(text=LINE, trust=TRUST, created_at=START)
    assert await held.swap(LINE * 2, TRUST) is None
    assert data(api) == {**expected, LEDGER_KEY: LINE * 2}


@in_virtual_time
async def test_a_second_claim_of_the_same_term_writes_nothing() -> None:
    api = installed(text="")
    await claimed(api)
    api.sent.clear()
    await ledger(api).claim()
    assert api.writes() == []


@in_virtual_time
async def test_after_the_next_leaders_claim_the_one_before_reads_and_writes_nothing() -> None:
    api = installed(text="")
    first = await claimed(api, FIRST)
    await ledger(api, SECOND).claim()
    before = data(api)
    lost = await first.swap(LINE, TRUST)
    assert lost == Failed(Trouble.CHANGED, "the ledger was changed by somebody else")
    read = await first.read()
    assert read == Failed(Trouble.CHANGED, "another leader has written its term")
    assert data(api) == before


@pytest.mark.parametrize("term", [None, "", "rubbish", "1/holder-1", "x/y/lease", "1/holder-1/lease"])
@in_virtual_time
async def test_a_term_that_no_successor_wrote_is_written_over_by_the_one_who_leads(term: str | None) -> None:
    """Somebody put an old copy of the ledger back: nothing would go until the next leader otherwise."""
    api = installed(text=LINE)
    held = await claimed(api, SECOND)
    old = {} if term is None else {TERM_KEY: term}
    api.change(CONFIGMAPS, LEDGER_CONFIGMAP, lambda raw: raw.update(data={LEDGER_KEY: LINE, **old}))
    assert await held.read() == LedgerText(text=LINE, trust=None, created_at=START)
    assert data(api)[TERM_KEY] == "2/holder-2/lease"


@pytest.mark.parametrize("term", ["3/holder-3/lease", "2/holder-3/lease", "1/holder-1/another-lease"])
@in_virtual_time
async def test_a_term_that_may_be_a_successors_is_left_alone(term: str) -> None:
    """A Lease that was deleted begins anew with its numbers."""
    api = installed(text=LINE)
    held = await claimed(api, SECOND)
    edit(api, **{TERM_KEY: term})
    assert isinstance(await held.read(), Failed)
    assert data(api)[TERM_KEY] == term


@in_virtual_time
async def test_a_claim_that_failed_is_made_by_the_next_read() -> None:
    api = installed({TERM_KEY: "7/holder-7/a-lease-that-was-deleted"}, text=LINE)
    api.script("PUT", PATH, refusal(403))
    held = ledger(api)
    with pytest.raises(ApiError):
        await held.claim()
    assert isinstance(await held.read(), LedgerText)
    assert data(api)[TERM_KEY] == "1/holder-1/lease"


@in_virtual_time
async def test_a_claim_that_may_not_be_written_leaves_the_other_term() -> None:
    """Whoever no longer leads must not take the ledger back."""
    api = installed({TERM_KEY: "another"}, text=LINE)
    held = ledger(api, fence=lambda _: False)
    assert isinstance(await held.read(), Failed)
    assert data(api)[TERM_KEY] == "another"


@in_virtual_time
async def test_two_who_make_the_first_ledger_at_once_make_one() -> None:
    api = stamped(installed())
    other = stamped_other_leader(api)
    held = ledger(api)
    with pytest.raises(ConflictError):
        await held.claim()
    assert data(api)[TERM_KEY] == other
    # The state was taken by the one who lost; what the winner made says nothing of completeness.
    assert LEDGER_COMPLETE_KEY not in data(api)


def stamped_other_leader(api: FakeApi) -> str:
    """Another leader's ledger comes to be just before ours."""
    stamp, term = api.before, "2/holder-2/lease"

    def rival(sent: Sent) -> None:
        stamp(sent)
        if (sent.method, sent.path) == ("POST", CONFIGMAPS):
            api.put(CONFIGMAPS, {"metadata": {"name": LEDGER_CONFIGMAP}, "data": {TERM_KEY: term}})

    api.before = rival
    return term


# --- the swap ----------------------------------------------------------------------------------------------


@in_virtual_time
async def test_a_swap_without_a_change_writes_nothing() -> None:
    api = installed({TRUST_KEY: TRUST}, text=LINE)
    held = await claimed(api)
    api.sent.clear()
    assert await held.swap(LINE, TRUST) is None
    assert api.sent == []


@in_virtual_time
async def test_swaps_follow_one_another_without_a_read_between() -> None:
    api = installed(text="")
    held = await claimed(api)
    api.sent.clear()
    for times in (1, 2, 3):
        assert await held.swap(LINE * times, TRUST) is None
    assert data(api)[LEDGER_KEY] == LINE * 3
    assert [sent.method for sent in api.sent] == ["PUT", "PUT", "PUT"]


@in_virtual_time
async def test_a_swap_over_a_label_keeps_the_label() -> None:
    api = installed(text="")
    held = await claimed(api)
    label(api)
    assert await held.swap(LINE, TRUST) is None
    assert api.get(CONFIGMAPS, LEDGER_CONFIGMAP)["metadata"]["labels"] == {"team": "ops"}
    assert data(api)[LEDGER_KEY] == LINE


@pytest.mark.parametrize("key", [LEDGER_KEY, TRUST_KEY, TERM_KEY, "note"])
@in_virtual_time
async def test_a_swap_over_an_edit_of_the_data_is_refused_and_nothing_is_lost(key: str) -> None:
    api = installed(text="")
    held = await claimed(api)
    edit(api, **{key: "by hand"})
    before = data(api)
    assert await held.swap(LINE, TRUST) == Failed(Trouble.CHANGED, "the ledger was changed by somebody else")
    assert data(api) == before


@in_virtual_time
async def test_a_label_and_an_edit_right_after_it_are_not_written_over() -> None:
    """The second attempt is a compare-and-swap too."""
    api = installed(text="")
    held = await claimed(api)
    label(api)
    api.after = lambda sent: edit(api, note="by hand") if sent.method == "GET" else None
    assert isinstance(await held.swap(LINE, TRUST), Failed)
    assert data(api)[LEDGER_KEY] == ""


@in_virtual_time
async def test_a_ledger_that_is_deleted_before_a_swap_is_not_made_by_it() -> None:
    api = installed(text="")
    held = await claimed(api)
    api.remove(CONFIGMAPS, LEDGER_CONFIGMAP)
    assert isinstance(await held.swap(LINE, TRUST), Failed)
    assert LEDGER_CONFIGMAP not in api.names(CONFIGMAPS)


@in_virtual_time
async def test_a_swap_before_any_read_writes_nothing() -> None:
    api = installed(text="")
    assert isinstance(await ledger(api).swap(LINE, TRUST), Failed)
    assert api.writes() == []


@in_virtual_time
async def test_with_the_fence_shut_nothing_is_swapped() -> None:
    api, open_ = installed(text=""), [True]
    held = ledger(api, fence=lambda _: open_[0])
    await held.claim()
    open_[0] = False
    assert isinstance(await held.swap(LINE, TRUST), Failed)
    assert data(api)[LEDGER_KEY] == ""


BAD_ANSWERS = {
    "401": refusal(401),
    "403": refusal(403),
    "413": refusal(413),
    "422": refusal(422, causes=1),
    "429": refusal(429),
    "500": refusal(500),
    "504": refusal(504),
    "no answer": Reply(hang=True),
    "a cut": Reply(cut=True),
}


@pytest.mark.parametrize("bad", BAD_ANSWERS.values(), ids=BAD_ANSWERS)
@in_virtual_time
async def test_a_swap_with_a_bad_answer_has_failed_and_the_next_read_mends_it(bad: Reply) -> None:
    api = installed(text="")
    held = await claimed(api)
    api.script("PUT", PATH, bad)
    failed = await held.swap(LINE, TRUST)
    assert isinstance(failed, Failed)
    assert failed.trouble is Trouble.UNKNOWN
    assert isinstance(await held.read(), LedgerText)
    assert await held.swap(LINE, TRUST) is None
    assert data(api)[LEDGER_KEY] == LINE


@in_virtual_time
async def test_a_swap_that_was_done_although_its_answer_was_lost_is_seen_by_the_next_read() -> None:
    api = installed(text="")
    held = await claimed(api)
    api.script("PUT", PATH, Reply(cut=True))
    api.after = lambda sent: edit(api, **{LEDGER_KEY: LINE, TRUST_KEY: TRUST}) if sent.method == "PUT" else None
    assert isinstance(await held.swap(LINE, TRUST), Failed)
    # Until then nothing more is written: that one may have been done is not known.
    assert isinstance(await held.swap(LINE * 2, TRUST), Failed)
    read = await held.read()
    assert isinstance(read, LedgerText)
    assert read.text == LINE


@pytest.mark.parametrize("bad", BAD_ANSWERS.values(), ids=BAD_ANSWERS)
@in_virtual_time
async def test_a_read_with_a_bad_answer_has_failed_in_the_api_servers_words(bad: Reply) -> None:
    api = installed(text="")
    held = await claimed(api)
    api.script("GET", PATH, bad)
    failed = await held.read()
    assert isinstance(failed, Failed)
    assert failed.message


@pytest.mark.parametrize(
    "odd",
    [
        [],
        "text",
        None,
        {},
        {"metadata": {}},
        {"metadata": None},
        {"metadata": {"name": LEDGER_CONFIGMAP, "resourceVersion": "1"}, "data": []},
    ],
    ids=str,
)
@in_virtual_time
async def test_an_answer_that_is_no_configmap_is_no_ledger(odd: Any) -> None:
    """Such as a proxy in between may send; an empty ledger would mean that nothing was spent."""
    api = installed(text="")
    held = await claimed(api)
    api.script("GET", PATH, reply(odd))
    assert isinstance(await held.read(), Failed)


@in_virtual_time
async def test_a_swap_whose_answer_shows_another_text_proves_nothing() -> None:
    api = installed(text="")
    held = await claimed(api)
    api.script("PUT", PATH, reply(api.get(CONFIGMAPS, LEDGER_CONFIGMAP)))
    assert isinstance(await held.swap(LINE, TRUST), Failed)


@pytest.mark.parametrize("odd", [[], "text", None, {}], ids=str)
@in_virtual_time
async def test_an_answer_to_a_swap_that_is_no_configmap_proves_nothing(odd: Any) -> None:
    api = installed(text="")
    held = await claimed(api)
    api.script("PUT", PATH, reply(odd))
    assert isinstance(await held.swap(LINE, TRUST), Failed)


@in_virtual_time
async def test_a_ledger_without_its_text_is_empty() -> None:
    api = installed(text=LINE)
    held = await claimed(api)
    api.change(CONFIGMAPS, LEDGER_CONFIGMAP, lambda raw: raw["data"].pop(LEDGER_KEY))
    assert await held.read() == LedgerText(text="", trust=None, created_at=START)
