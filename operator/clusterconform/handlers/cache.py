"""What we have seen: nodes, profiles, and whether the picture is complete.

The cache is level-triggered: it takes a newer resourceVersion of a node and nothing else, so answers to our
own writes, watch events and lists may arrive in any order.
"""

from collections.abc import Iterable, Mapping

from clusterconform.contract.facts import NodeFacts
from clusterconform.contract.profile import ProfileObject
from clusterconform.contract.verdicts import Catalogue
from clusterconform.decisions.gate import accept


class Cache:
    """The nodes by name and the profiles with their judgement."""

    def __init__(self) -> None:
        """Know nothing, and say so."""
        self._nodes: dict[str, NodeFacts] = {}
        self._profiles: dict[str, ProfileObject] = {}
        # Uids of what was deleted: a list that was read meanwhile still shows it, and must not bring it back.
        self._gone: set[str] = set()
        self._gone_before: set[str] = set()
        self.catalogue = Catalogue(profiles={}, refusals={})

    def __len__(self) -> int:
        """Number of nodes known."""
        return len(self._nodes)

    def node(self, name: str) -> NodeFacts | None:
        """The node called ``name`` as last seen."""
        return self._nodes.get(name)

    def nodes(self) -> Iterable[NodeFacts]:
        """All nodes as last seen."""
        return self._nodes.values()

    def names(self) -> list[str]:
        """The names of all nodes."""
        return list(self._nodes)

    def observe(self, node: NodeFacts) -> bool:
        """Take ``node`` if it is news; returns whether it was."""
        known = self._nodes.get(node.name)
        if self._is_gone(node.uid) or (known is not None and not _is_newer(node, known)):
            return False
        self._nodes[node.name] = node
        return True

    def confirm(self, node: NodeFacts) -> bool:
        """Take the answer to a write of ours, unless the node has meanwhile gone or been replaced.

        An answer may be read after the watch has told of the deletion; taking it would leave a ghost.
        """
        known = self._nodes.get(node.name)
        return known is not None and known.uid == node.uid and self.observe(node)

    def forget(self, name: str, uid: str) -> bool:
        """Forget the node of that name and uid; returns whether it was known."""
        self._gone.add(uid)
        known = self._nodes.get(name)
        if known is None or (uid and known.uid != uid):
            return False
        del self._nodes[name]
        return True

    def begin_list(self) -> None:
        """A list begins: what was deleted before the last one began cannot come back any more."""
        self._gone_before, self._gone = self._gone, set()

    def vanished(self, listed: Iterable[str], version: str) -> list[NodeFacts]:
        """The nodes known but not in a complete list taken at ``version``; younger ones are not meant."""
        names = set(listed)
        return [
            node
            for node in self._nodes.values()
            if node.name not in names and _number(node.resource_version) <= _number(version)
        ]

    def profiles(self) -> Mapping[str, ProfileObject]:
        """The profiles by name."""
        return self._profiles

    def set_profile(self, profile: ProfileObject) -> bool:
        """Take ``profile`` if it is news; returns whether the catalogue changed by it."""
        return self.set_profiles([profile])

    def set_profiles(self, profiles: Iterable[ProfileObject]) -> bool:
        """Take those of ``profiles`` that are news; returns whether the catalogue changed by it."""
        news = {
            profile.name: profile
            for profile in profiles
            if not self._is_gone(profile.uid) and _is_newer_profile(profile, self._profiles.get(profile.name))
        }
        return self._replace({**self._profiles, **news}) if news else False

    def drop_profile(self, name: str, uid: str) -> bool:
        """Forget a deleted profile; returns whether the catalogue changed by it."""
        self._gone.add(uid)
        known = self._profiles.get(name)
        if known is None or (uid and known.uid != uid):
            return False
        return self._replace({key: seen for key, seen in self._profiles.items() if key != name})

    def _is_gone(self, uid: str) -> bool:
        return bool(uid) and (uid in self._gone or uid in self._gone_before)

    def _replace(self, profiles: dict[str, ProfileObject]) -> bool:
        self._profiles = profiles
        catalogue = accept(list(profiles.values()))
        if catalogue == self.catalogue:
            # The old one stays: what was worked out by it holds, and whoever keeps it need not begin anew.
            return False
        self.catalogue = catalogue
        return True


def _is_newer_profile(profile: ProfileObject, known: ProfileObject | None) -> bool:
    return (
        known is None
        or not profile.resource_version
        or (_number(profile.resource_version) > _number(known.resource_version))
    )


def _is_newer(node: NodeFacts, known: NodeFacts) -> bool:
    # Also across two lives of one name: the versions of one resource never go back.
    return _number(node.resource_version) > _number(known.resource_version)


def _number(version: str) -> int:
    """Resource versions of one resource are growing numbers (KEP-5504); all else is as old as can be."""
    return int(version) if version.isdigit() else 0
