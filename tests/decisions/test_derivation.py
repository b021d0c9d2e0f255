"""Names to endpoints, by the vectors of contract §5.7 and the rows of §5.6."""

import pytest
from builders import bare, facts

from clusterconform.contract.names import NODE_ARGS_ANNOTATION
from clusterconform.decisions.derivation import (
    SLOTS,
    fnv1a,
    home_slot,
    is_ours,
    kubelet_port,
    loopback,
    routing_name,
)

LONG = "x" * 63
VECTORS = [
    ("", 0x811C9DC5, 15557, "127.0.60.197", 0x2C3AA4D5, 29789),
    ("a", 0xE40C292C, 6956, "127.0.27.44", 0x5451475C, 22828),
    ("pi", 0x484E4BF2, 58098, "127.0.226.242", 0xF4CE4DE2, 23058),
    ("laptop", 0x5B9DCC2D, 50733, "127.0.198.45", 0x87806A1D, 23933),
    ("laptop-abc123", 0x5B34AAF0, 15344, "127.0.59.240", 0x8173D6E0, 29512),
    ("laptop-4c7adeb6", 0x67D19A9A, 54426, "127.0.212.154", 0x675C4B8A, 29898),
    ("worker", 0x95CE3757, 40023, "127.0.156.87", 0x7F4C9FC7, 22071),
    ("worker-a", 0xA3F97DBD, 7357, "127.0.28.189", 0x9776EA2D, 23813),
    ("worker-b", 0xA0F97904, 5380, "127.0.21.4", 0x9476E574, 27956),
    ("gpu-box", 0x948D7161, 37985, "127.0.148.97", 0xD3C11B31, 26985),
    ("novidesign", 0x669D27E5, 11493, "127.0.44.229", 0x5D11F8F5, 24933),
    ("novidesign-4c7adeb6", 0xBC6277F2, 38898, "127.0.151.242", 0xFCE846C2, 24898),
    ("dragon", 0xF810361E, 16414, "127.0.64.30", 0x5B01608E, 23910),
    ("alpha", 0x5D8B6DAB, 22443, "127.0.87.171", 0x4FA5813B, 28587),
    ("fresh", 0xAD28C52F, 39983, "127.0.156.47", 0x44C3729F, 24551),
    ("settled", 0x30FC573A, 34106, "127.0.133.58", 0x69901DCA, 26490),
    ("node-0", 0x53C431F0, 19184, "127.0.74.240", 0xC2A51E20, 26056),
    ("node-499", 0xB7376712, 22290, "127.0.87.18", 0x3AB6A642, 28642),
    ("host.example.com", 0x2ED4715C, 30044, "127.0.117.92", 0x7511692C, 26308),
    ("ip-10-0-0-1.us-west-2.compute.internal", 0x31A82CF9, 2041, "127.0.7.249", 0xF47EF4E9, 24937),
    (LONG, 0x3511893F, 53311, "127.0.208.63", 0x2CCC7F8F, 21503),
]


def port(name: str) -> int:
    return kubelet_port(name, base=21000, slots=9000)


@pytest.mark.parametrize("vector", VECTORS, ids=[vector[0] or "empty" for vector in VECTORS])
def test_the_vectors_hold(vector: tuple[str, int, int, str, int, int]) -> None:
    name, home, slot, address, ported, number = vector
    assert (fnv1a(name), fnv1a(f"kubelet:{name}")) == (home, ported)
    # The table counts slots from 127.0.0.0 on, of which the first block is never given out.
    assert (home_slot(name) + 256, loopback(home_slot(name))) == (slot, address)
    assert 21000 + ported % 9000 == number
    assert port(name) == (number if name else 0)  # A12: no name, no port


@pytest.mark.parametrize(("text", "value"), [("", 0x811C9DC5), ("a", 0xE40C292C), ("foobar", 0xBF9CF968)])
def test_the_hash_is_fnv_1a_of_32_bits(text: str, value: int) -> None:
    assert fnv1a(text) == value


def test_names_are_hashed_as_utf_8() -> None:
    assert fnv1a("ü") == fnv1a_of(bytes([0xC3, 0xBC]))


def fnv1a_of(octets: bytes) -> int:
    value = 2166136261
    for octet in octets:
        value = (value ^ octet) * 16777619 % 2**32
    return value


def test_A2_no_address_lies_in_the_first_block() -> None:
    addresses = [loopback(home_slot(f"n{index}")) for index in range(2000)]
    assert all(is_ours(address) for address in addresses)
    assert not any(address.startswith("127.0.0.") for address in addresses)


def test_the_first_and_the_last_slot_are_the_ends_of_the_range() -> None:
    assert (loopback(0), loopback(SLOTS - 1)) == ("127.0.1.0", "127.0.255.255")


def test_A11_no_port_is_privileged_a_node_port_or_ephemeral() -> None:
    assert {port(f"node-{index}") for index in range(5000)} <= set(range(21000, 30000))


@pytest.mark.parametrize(
    ("address", "ours"),
    [
        ("127.0.1.0", True),
        ("127.0.255.255", True),
        ("127.0.10.7", True),
        ("127.0.0.1", False),
        ("127.0.0.255", False),
        ("127.0.256.1", False),
        ("127.0.1.256", False),
        ("127.0.01.1", False),
        ("127.0.1", False),
        ("127.0.1.1.example.com", False),
        ("127.0.1.1\n", False),
        ("127.1.1.1", False),
        ("203.0.113.5", False),
        ("127.0.\u0661.1", False),
        ("", False),
    ],
)
def test_ours_is_a_range_and_not_a_prefix(address: str, ours: bool) -> None:
    assert is_ours(address) is ours


# --- the routing name --------------------------------------------------------------------------------------


def routed(name: str, args: str | None) -> str:
    return routing_name(facts(bare(name, annotations={} if args is None else {NODE_ARGS_ANNOTATION: args})))


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        pytest.param(
            "novidesign-4c7adeb6",
            '["agent","--node-name","novidesign","--with-node-id"]',
            "novidesign",
            id="A5",
        ),
        pytest.param("worker-abcd1234", '["--node-name","other"]', "worker-abcd1234", id="A6 another node's name"),
        pytest.param("worker-abcd1234", '["--node-name","wor', "worker-abcd1234", id="A6 truncated"),
        pytest.param("pi-1", '["--node-name"," ","--node-name","pi"]', "pi", id="A16 blank value keeps looking"),
        pytest.param("pi-1", None, "pi-1", id="no annotation"),
        pytest.param("pi-1", "", "pi-1", id="empty"),
        pytest.param("pi-1", " \t ", "pi-1", id="blank"),
        pytest.param("pi-1", "null", "pi-1", id="null"),
        pytest.param("pi-1", '{"--node-name":"pi"}', "pi-1", id="no array"),
        pytest.param("pi-1", '["--node-name",1]', "pi-1", id="no strings"),
        pytest.param("pi-1", '["--node-name",null,"--node-name","pi"]', "pi", id="null element is blank"),
        pytest.param("pi-1", '["--node-name=pi"]', "pi-1", id="joined is not recognised"),
        pytest.param("pi-1", '["--node-name"]', "pi-1", id="no value"),
        pytest.param("pi-1", '["--node-name"," pi "]', "pi", id="trimmed"),
        pytest.param("pi-1", '["--node-name","\u00a0pi\u2003"]', "pi", id="trimmed as Unicode"),
        pytest.param("pi-1", '["--node-name","\\u001fpi"]', "pi-1", id="U+001F is no white space"),
        pytest.param("pi-1", '\u00a0["--node-name","pi"]\u3000', "pi", id="text is trimmed as Unicode"),
        pytest.param("pi-1", '["--node-name","pi",NaN]', "pi-1", id="NaN is no JSON"),
        pytest.param("pi", '["--node-name","pi"]', "pi", id="registered as the base"),
        pytest.param("pix-1", '["--node-name","pi"]', "pix-1", id="another name that begins alike"),
        pytest.param("pi-1", '["--node-name","other","--node-name","pi"]', "pi-1", id="the first value decides"),
        pytest.param("pi.lab-1", '["--node-name","pi.lab"]', "pi.lab", id="dots"),
        pytest.param("a" * 244 + "-4c7adeb6", f'["--node-name","{"a" * 244}"]', "a" * 244, id="253 characters"),
    ],
)
def test_the_routing_name(name: str, args: str | None, expected: str) -> None:
    assert routed(name, args) == expected
