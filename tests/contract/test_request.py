"""Requests as values."""

import pytest

from clusterconform.contract.request import Request


@pytest.mark.parametrize(
    ("method", "path", "kind"),
    [
        ("GET", "/api/v1/nodes", "GET v1/nodes"),
        ("GET", "/api/v1/nodes?limit=500&continue=x%2Fy", "GET v1/nodes"),
        ("GET", "/api/v1/nodes/pi-1", "GET v1/nodes/NAME"),
        ("PATCH", "/api/v1/nodes/pi-1", "PATCH v1/nodes/NAME"),
        ("PATCH", "/api/v1/nodes/pi-1/status?fieldManager=x", "PATCH v1/nodes/NAME/status"),
        ("GET", "/api/v1/namespaces/default", "GET v1/namespaces/NAME"),
        ("POST", "/api/v1/namespaces/default/events", "POST v1/events"),
        ("GET", "/api/v1/namespaces/a/pods/b/log", "GET v1/pods/NAME/log"),
        ("PUT", "/apis/coordination.k8s.io/v1/namespaces/a/leases/b", "PUT coordination.k8s.io/v1/leases/NAME"),
        ("GET", "/apis/outpost.dhnt.io/v1alpha1/runtimeprofiles", "GET outpost.dhnt.io/v1alpha1/runtimeprofiles"),
        ("GET", "/api", "GET "),
        ("GET", "/", "GET "),
    ],
)
def test_a_kind_is_method_and_resource_whatever_the_name(method: str, path: str, kind: str) -> None:
    assert Request(method=method, path=path).kind == kind
