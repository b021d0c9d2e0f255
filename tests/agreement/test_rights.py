"""The rights that are shipped: each labelled with what uses it, and none that would be worth stealing."""

import re
from typing import Any, Final

import pytest
import yaml
from deployment import DEPLOY

Json = dict[str, Any]

TEXT: Final = (DEPLOY / "base" / "rbac.yaml").read_text()
RULES: Final[list[Json]] = [rule for item in yaml.safe_load_all(TEXT) if item for rule in item.get("rules", [])]


def test_every_rule_is_labelled_with_what_uses_it() -> None:
    """A rule that shares a label stands directly below the one that bears it."""
    heads = re.findall(r"(?m)^(.*)\n- apiGroups:", TEXT)
    assert len(heads) == len(RULES)
    unlabelled = [head for head in heads if not head.startswith("# ") and not head.startswith("  verbs: ")]
    assert unlabelled == []
    assert heads[0].startswith("# ")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule['resources']}-{rule['verbs']}")
def test_no_rule_is_wide(rule: Json) -> None:
    assert rule.keys() <= {"apiGroups", "resources", "resourceNames", "verbs"}
    words = [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
    assert not [word for word in words if "*" in word]
    assert not {"escalate", "bind", "impersonate", "deletecollection"} & set(rule["verbs"])
    # What exists is only replaced by its name.
    assert "update" not in rule["verbs"] or rule["resourceNames"]


def test_nothing_leads_to_secrets_into_nodes_or_into_containers() -> None:
    """``get nodes/proxy`` is the right to run commands in any container of any node."""
    resources = {resource for rule in RULES for resource in rule["resources"]}
    assert not resources & {"secrets", "nodes/proxy", "pods/exec", "pods/attach", "pods/portforward", "pods/proxy"}
    assert not resources & {"serviceaccounts", "serviceaccounts/token", "roles", "clusterroles", "rolebindings"}


def test_pods_and_what_makes_pods_are_ours_to_touch_in_our_namespace_alone() -> None:
    for item in yaml.safe_load_all(TEXT):
        for rule in item.get("rules", []) if item else []:
            if {"pods", "pods/log", "daemonsets"} & set(rule["resources"]):
                assert (item["kind"], item["metadata"]["namespace"]) == ("Role", "clusterconform-system")
