import pytest

from clusterconform.contract import matrix
from clusterconform.contract.matrix import MATRIX, node_name, serves, serves_kubelet_streaming
from clusterconform.contract.profile import Capability, NodeClass

VIRTUAL = ["vk-native", "vk-ollama", "vk-podman"]
BACKENDS = ["k3s", *VIRTUAL]

# Capability, served by k3s, served by each virtual backend.
CAPABILITIES = [
    ("pod-lifecycle", True, True),
    ("kubelet-log-stream", True, False),
    ("kubelet-exec", True, False),
    ("kubelet-attach", True, False),
    ("kubelet-port-forward", True, False),
    ("kubelet-stats", True, False),
    ("termination-log-tail", False, True),
    ("transient-app-route", False, True),
]

FIELDS = {
    "k3s": (NodeClass.AGENT, "agent", "", False, True, True, True),
    "vk-podman": (NodeClass.VIRTUAL, "virtual", "-vk-podman", True, False, False, False),
    "vk-native": (NodeClass.VIRTUAL, "virtual", "-vk-native", True, False, False, False),
    "vk-ollama": (NodeClass.VIRTUAL, "virtual", "-vk-ollama", True, False, False, False),
}


def test_there_are_four_backends_under_their_own_names() -> None:
    assert sorted(MATRIX) == BACKENDS
    assert all(backend == row.backend for backend, row in MATRIX.items())


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_backend_has_the_fields_of_the_contract(backend: str) -> None:
    row = matrix.profile(backend)
    assert row is not None
    assert FIELDS[backend] == (
        row.node_class,
        row.runtime_label_value,
        row.node_name_suffix,
        row.provider_taint,
        row.subject_to_node_gc,
        row.subject_to_runtime_probe,
        row.subject_to_address_reconcile,
    )


@pytest.mark.parametrize(("capability", "agent", "virtual"), CAPABILITIES)
def test_a_backend_serves_what_the_contract_says(
    capability: str,
    agent: bool,
    virtual: bool,
) -> None:
    assert serves("k3s", capability) is agent
    assert [serves(backend, capability) for backend in VIRTUAL] == [virtual] * 3


def test_the_contract_knows_no_other_capability() -> None:
    assert list(Capability) == [name for name, _, _ in CAPABILITIES]


def test_the_agent_serves_six_capabilities_and_a_virtual_backend_three() -> None:
    assert {backend: len(row.capabilities) for backend, row in MATRIX.items()} == {
        "k3s": 6,
        "vk-podman": 3,
        "vk-native": 3,
        "vk-ollama": 3,
    }


def test_all_virtual_backends_share_one_set() -> None:
    assert len({MATRIX[backend].capabilities for backend in VIRTUAL}) == 1


def test_only_the_agent_has_settings_for_the_node_reconcilers() -> None:
    for row in MATRIX.values():
        blocks = (row.node_gc, row.runtime_probe, row.address_reconcile)
        assert all(block is not None for block in blocks) is (row.backend == "k3s")
        assert any(block is not None for block in blocks) is (row.backend == "k3s")


@pytest.mark.parametrize("backend", ["", "agent", "vk-docker", "K3S", "k3s ", "vk-podman-2"])
def test_an_unknown_backend_serves_nothing(backend: str) -> None:
    assert matrix.profile(backend) is None
    assert not any(serves(backend, capability) for capability in Capability)
    assert not serves_kubelet_streaming(backend)


@pytest.mark.parametrize("capability", ["", "kubelet-log", "Pod-Lifecycle", "pod-lifecycle "])
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_unknown_capability_is_served_by_nobody(backend: str, capability: str) -> None:
    assert not serves(backend, capability)


def test_only_the_agent_serves_kubelet_streaming() -> None:
    assert [backend for backend in BACKENDS if serves_kubelet_streaming(backend)] == ["k3s"]


def test_the_virtual_backends_come_sorted_bytewise() -> None:
    assert matrix.virtual_backends() == VIRTUAL


@pytest.mark.parametrize(
    ("base", "backend", "name"),
    [
        ("laptop", "vk-podman", "laptop-vk-podman"),
        ("laptop", "vk-native", "laptop-vk-native"),
        ("laptop", "vk-ollama", "laptop-vk-ollama"),
        ("laptop", "k3s", "laptop"),
        ("laptop", "vk-docker", "laptop"),
        ("laptop", "", "laptop"),
        ("", "vk-podman", "-vk-podman"),
        ("", "k3s", ""),
        ("x" * 300, "vk-podman", "x" * 300 + "-vk-podman"),
        ("Not A Name", "vk-podman", "Not A Name-vk-podman"),
    ],
)
def test_a_node_name_is_base_and_suffix_unchecked(base: str, backend: str, name: str) -> None:
    assert node_name(base, backend) == name
