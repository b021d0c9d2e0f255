"""The fence, and what code, rights, tests and docs say of the same things."""

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from clusterconform.contract import names
from clusterconform.contract.matrix import MATRIX
from clusterconform.contract.plan import PROVIDER_TAINT_MARK
from clusterconform.contract.profile import NodeClass

Json = dict[str, Any]

ROOT: Final = Path(__file__).parents[2]
DOCUMENTS: Final[list[Json]] = list(yaml.safe_load_all((ROOT / "deploy" / "base" / "admission.yaml").read_text()))
POLICIES: Final = [one for one in DOCUMENTS if one["kind"] == "ValidatingAdmissionPolicy"]
RULES: Final = [(policy, rule) for policy in POLICIES for rule in policy["spec"]["validations"]]
TABLES: Final[Json] = yaml.safe_load((ROOT / "tests" / "data" / "fence" / "requests.yaml").read_text())
TABLE: Final = {"clusterconform-fence-delete": "deletions", "clusterconform-fence-write": "writes"}
PAGE: Final = dict(zip(TABLE, (ROOT / "docs" / "fence.md").read_text().split("\nA write to a node"), strict=True))

AGENT: Final = next(row for row in MATRIX.values() if row.node_class is NodeClass.AGENT)
KNOWN: Final = {
    f"{names.GROUP}/",
    names.RUNTIME_LABEL,
    names.BACKEND_LABEL,
    names.HOST_LABEL,
    names.MARKS_ANNOTATION,
    names.KEEP_ANNOTATION,
    names.ENDPOINT_ANNOTATION,
    names.PROVIDER_TAINT_KEY,
    PROVIDER_TAINT_MARK,
    names.VIRTUAL_KUBELET_ANNOTATION_PREFIX,
    *names.CONTROL_PLANE_ROLES,
    # What later parts of the operator write.
    f"{names.GROUP}/runtime-unavailable",
    "k3s.io/external-ip",
}


def name_of(document: Json) -> str:
    return str(document["metadata"]["name"])


def literals(expression: str) -> list[str]:
    return re.findall(r"'([^']*)'", expression)


def answers(rule: Json) -> list[str]:
    """How what is said of a node may begin: the texts that follow its name."""
    return [text.strip() for text in literals(rule["messageExpression"]) if text.startswith(" ")]


def expressions(policy: Json) -> list[str]:
    parts = [*policy["spec"]["variables"], *policy["spec"]["validations"]]
    return [part["expression"] for part in parts]


def test_every_policy_is_bound_and_denies() -> None:
    bindings = {
        one["spec"]["policyName"]: (name_of(one), one["spec"]["validationActions"])
        for one in DOCUMENTS
        if one["kind"] == "ValidatingAdmissionPolicyBinding"
    }
    assert bindings == {name_of(policy): (name_of(policy), ["Deny"]) for policy in POLICIES}
    assert {policy["spec"]["failurePolicy"] for policy in POLICIES} == {"Fail"}


def test_it_holds_for_our_account_and_for_nobody_else() -> None:
    account = f"system:serviceaccount:{names.NAMESPACE}:{names.SERVICE_ACCOUNT}"
    wanted = [{"name": "operator", "expression": f"request.userInfo.username == '{account}'"}]
    assert [policy["spec"]["matchConditions"] for policy in POLICIES] == [wanted] * 2


def test_it_sees_every_way_to_write_or_delete_a_node() -> None:
    seen = {
        (operation, resource)
        for policy in POLICIES
        for rule in policy["spec"]["matchConstraints"]["resourceRules"]
        for operation in rule["operations"]
        for resource in rule["resources"]
    }
    writes = {(verb, part) for verb in ("CREATE", "UPDATE") for part in ("nodes", "nodes/status")}
    assert seen == {("DELETE", "nodes"), *writes}


def test_it_speaks_of_the_names_that_the_code_knows() -> None:
    spoken = {text for policy in POLICIES for one in expressions(policy) for text in literals(one)}
    keys = {text.split()[-1] for text in spoken if "/" in text}
    assert keys == KNOWN
    words = {AGENT.runtime_label_value, AGENT.backend, names.TYPE_LABEL, names.VIRTUAL_KUBELET_TYPE}
    assert {*words, names.PROVIDER_TAINT_EFFECT, names.CONFORMANT_CONDITION} <= spoken


@pytest.mark.parametrize(("policy", "rule"), RULES, ids=[answers(rule)[0][:40] for _, rule in RULES])
def test_every_rule_is_said_tried_and_documented(policy: Json, rule: Json) -> None:
    assert rule["reason"] == "Forbidden"
    assert rule["messageExpression"].startswith("variables.node + ")
    begins = answers(rule)[0]
    said = [row["says"] for row in TABLES[TABLE[name_of(policy)]] if "says" in row]
    assert [text for text in said if text.startswith(begins)]
    cells = re.findall(r"^\| (`.*?) \|", PAGE[name_of(policy)], re.MULTILINE)
    shown = {text.rstrip(" …") for cell in cells for text in re.findall(r"`([^`]+)`", cell)}
    assert [text for text in shown if begins.startswith(text)]


def test_no_request_is_refused_for_what_no_rule_says() -> None:
    for policy in POLICIES:
        begins = [text for rule in policy["spec"]["validations"] for text in answers(rule)]
        said = [row["says"] for row in TABLES[TABLE[name_of(policy)]] if "says" in row]
        assert [text for text in said if not text.startswith(tuple(begins))] == []


def test_our_account_cannot_open_it() -> None:
    rules = [
        rule
        for document in yaml.safe_load_all((ROOT / "deploy" / "base" / "rbac.yaml").read_text())
        for rule in document.get("rules", ())
    ]
    # It may look whether the policy that pins endpoints is there, and no more.
    groups = {group for rule in rules for group in rule["apiGroups"] if rule["verbs"] != ["get"]}
    verbs = {verb for rule in rules for verb in rule["verbs"]}
    assert not groups & {"*", "admissionregistration.k8s.io", "rbac.authorization.k8s.io"}
    assert not verbs & {"*", "deletecollection", "impersonate", "escalate", "bind"}
