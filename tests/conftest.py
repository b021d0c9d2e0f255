"""What all tests share: how long the property tests search.

``short`` belongs to every run and tries the same examples each time; ``--hypothesis-profile=long`` seeks new
ones. And which Kubernetes the end-to-end tests run on: ``--kubernetes=1.34``.
"""

import os
import signal

import pytest
from hypothesis import settings

from clusterconform.sandbox.parts import NEWEST, VERSIONS

# Whoever runs several test processes tells each how wide the terminal is; what a command prints into a pipe does
# not depend on it.
os.environ.pop("COLUMNS", None)

# Whoever runs the tests in the background of a shell, or under nohup, has made them deaf to these, and with them
# every program that they start and ask to end.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the end-to-end tests run on another Kubernetes than the newest."""
    parser.addoption(
        "--kubernetes",
        choices=list(VERSIONS),
        default=NEWEST.minor,
        help="version of the control plane in end-to-end tests",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """End-to-end tests first: they take the longest, and nobody should wait for one of them alone at the end."""
    items.sort(key=lambda item: "/e2e/" not in item.nodeid)


settings.register_profile("short", max_examples=100, derandomize=True, deadline=None)
settings.register_profile("long", max_examples=2000, deadline=None)
settings.load_profile("short")
