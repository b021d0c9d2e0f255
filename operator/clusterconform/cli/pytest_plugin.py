"""The gate inside others' pytest: the fixture ``conformance``, found without a line of configuration.

    def test_my_nodes(conformance):
        conformance("vk-podman").holds(build_node)

Everything but pytest itself is imported by the fixture, so that a suite that does not use it pays nothing.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from clusterconform.contract.profile import RuntimeProfile

Build = Callable[[str], Mapping[str, Any]]
"""A builder: gets the base (the host's name), gives the Node as ``kubectl get node -o json`` would show it."""


class Conformance:
    """What one profile promises of its nodes."""

    def __init__(self, profile: "RuntimeProfile") -> None:
        """Hold builders to ``profile``."""
        self._profile = profile

    def holds(self, build: Build, *, bases: tuple[str, ...] = ("laptop", "desk")) -> None:
        """Fail, and say why, unless ``build`` makes what the profile promises (contract R10 to R13).

        Args:
            build: The builder.
            bases: The hosts for which it is asked; two, since the names on two hosts must differ.
        """
        from clusterconform.contract.matrix import MATRIX  # noqa: PLC0415
        from clusterconform.contract.verdicts import Catalogue  # noqa: PLC0415
        from clusterconform.decisions.building import judge_builder  # noqa: PLC0415
        from clusterconform.effects.clock import Clock  # noqa: PLC0415

        profiles = {**MATRIX, self._profile.backend: self._profile}
        catalogue = Catalogue(profiles=profiles, refusals={})
        built = {base: build(base) for base in bases}
        breaches = judge_builder(built, self._profile, catalogue, Clock().moment())
        if breaches:
            lines = "\n".join(f"  {breach}" for breach in breaches)
            pytest.fail(f"the builder breaks the contract of {self._profile.backend}:\n{lines}", pytrace=False)


@pytest.fixture
def conformance() -> Callable[[str | Mapping[str, Any]], Conformance]:
    """``conformance(profile)``: the name of a built-in backend, or the manifest of a RuntimeProfile."""
    from clusterconform.contract.matrix import MATRIX  # noqa: PLC0415
    from clusterconform.contract.profile import Refusal, read_profile  # noqa: PLC0415
    from clusterconform.decisions.gate import judge_profile  # noqa: PLC0415

    def of(profile: str | Mapping[str, Any]) -> Conformance:
        if isinstance(profile, str):
            if profile not in MATRIX:
                raise LookupError(f"no built-in backend {profile!r}, but {', '.join(MATRIX)}; give the manifest")
            return Conformance(MATRIX[profile])
        contract = read_profile(profile).contract
        broken = [contract] if isinstance(contract, Refusal) else judge_profile(contract)
        if isinstance(contract, Refusal) or broken:
            raise ValueError(f"the profile itself is refused: {'; '.join(map(str, broken))}")
        return Conformance(contract)

    return of
