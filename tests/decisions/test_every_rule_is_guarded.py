"""Breaks each numbered rule in a copy of the package and looks whether a test of that rule's number fails."""

import importlib
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import clusterconform

PACKAGE = Path(clusterconform.__file__).parent
TESTS = Path(__file__).parent
SUPPORT = TESTS.parent / "support"
SOME_FAILED = 1  # pytest's exit code for it; a copy that cannot even be imported gives another one


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One rule broken.

    Attributes:
        rule: The word that the names of the rule's tests hold.
        module: The module of ``decisions`` that owns the rule.
        fragment: What stands there once.
        replacement: What breaks the rule.
    """

    rule: str
    module: str
    fragment: str
    replacement: str


def mutant(module: str, rule: str, fragment: str, replacement: str) -> Mutant:
    return Mutant(rule=rule, module=module, fragment=fragment, replacement=replacement)


MUTANTS = [
    mutant("identity", "rule_1", "    if claim:\n", "    if not claim:\n"),
    mutant("identity", "rule_2", "    if against:\n", "    if False:\n"),
    mutant("identity", "rule_3", "finding=not_accepted if refusal else unknown", "finding=not_accepted"),
    mutant(
        "identity",
        "rule_4",
        "(node.conformant is not None or named.adopt is Adoption.BY_EVIDENCE)",
        "(node.conformant is not None or True)",
    ),
    mutant(
        "identity",
        "rule_5",
        "Evidence.PROVIDER_TAINT: foreign_taint,",
        "Evidence.PROVIDER_TAINT: any(taint.key == PROVIDER_TAINT_KEY for taint in node.taints or ()),",
    ),
    mutant("identity", "rule_6", "    if agent == virtual:\n", "    if not agent and not virtual:\n"),
    mutant(
        "conformance",
        "rule_1",
        "RUNTIME_LABEL, profile.runtime_label_value,",
        "RUNTIME_LABEL, node.labels.get(RUNTIME_LABEL) or 'agent',",
    ),
    mutant(
        "conformance",
        "rule_2",
        "BACKEND_LABEL, profile.backend,",
        "BACKEND_LABEL, node.labels.get(BACKEND_LABEL),",
    ),
    mutant("conformance", "rule_3", "    if node.labels.get(HOST_LABEL):\n", "    if False:\n"),
    mutant(
        "conformance",
        "rule_4",
        "ours is not None and ours.value == profile.provider_taint_value",
        "ours is not None",
    ),
    mutant(
        "conformance",
        "rule_5",
        "ours is not None and PROVIDER_TAINT_MARK in marks_listed(node)",
        "ours is not None",
    ),
    mutant("conformance", "rule_6", "if virtual and node.kubelet_port:", "if node.kubelet_port:"),
    mutant("conformance", "rule_7", 'node.name.startswith(f"{label}-")', "node.name.startswith(label)"),
    mutant("conditions", "rule_1", "CLEAN_SECONDS: Final = 10.0", "CLEAN_SECONDS: Final = 9.0"),
    mutant("conditions", "rule_2", "DRIFT_SECONDS: Final = 30.0", "DRIFT_SECONDS: Final = 0.0"),
    mutant(
        "conditions",
        "rule_3",
        'if seen is None or (seen.status, seen.reason) == ("Unknown", Reason.NOT_ENFORCED):',
        "if seen is None:",
    ),
    mutant(
        "conditions",
        "rule_4",
        "if seen is not None and same_status else None",
        "if seen is not None else None",
    ),
    mutant("contention", "three_times", "ROUNDS: Final = 3", "ROUNDS: Final = 4"),
    mutant("contention", "ten_minutes", "WINDOW_SECONDS: Final = 600.0", "WINDOW_SECONDS: Final = 900.0"),
    mutant("contention", "hour", "REST_SECONDS: Final = 3600.0", "REST_SECONDS: Final = 1800.0"),
    mutant("derivation", "routing_name", 'node.name.startswith(f"{base}-")', "node.name.startswith(base)"),
    mutant(
        "allocation", "rule_1", "created is None, created.timestamp()", "created is not None, created.timestamp()"
    ),
    mutant("allocation", "rule_2", ">= (slot - gap) % SLOTS", "> (slot - gap) % SLOTS"),
    mutant("allocation", "rule_3", "        if first != claim.name:\n", "        if False:\n"),
    mutant("allocation", "rule_4", "        if younger and not claim.ready:\n", "        if False:\n"),
    mutant(
        "allocation",
        "rule_5",
        "        insort(line, (claim.age, claim.name))\n",
        "        insort(line, (claim.age, claim.name))\n"
        "        if line[0][1] != claim.name:\n"
        "            return set()\n",
    ),
    mutant("addresses", "rule_1", "return external[:1] == [address] and", "return bool(external) and"),
    mutant("addresses", "rule_2", "(ours, *others) if any", "(*others, ours) if any"),
    mutant("addresses", "rule_4", "wanted = [endpoint.address, *real]", "wanted = [*real, endpoint.address]"),
    mutant("addresses", "rule_5", "publish or K3S_EXTERNAL_IP_MARK in marks_listed(node)", "True"),
    mutant("addresses", "rule_6", "if len(recent) >= WRITES_PER_MINUTE:", "if False:"),
    mutant("sandbox", "rule_6", "(True, memory, None) if left <= 0", "(True, memory, None) if True"),
    mutant("sandbox", "rule_7", "tainted * 100 > percent * agents", "tainted * 100 >= percent * agents"),
    mutant("streaming", "rule_1", "is Reason.STREAMING_VERIFIED\n", "is not Reason.STREAMING_VERIFIED\n"),
    mutant("streaming", "rule_2", "words[:_WORDS_LENGTH]", "words"),
    mutant("streaming", "rule_3", "last.target != target", "last.target.pod != target.pod"),
    mutant("agent_standing", "rule_1", "published + ghosts < total", "published < total"),
    mutant("agent_standing", "rule_2", "    if not ready:\n", "    if False:\n"),
    mutant("agent_standing", "rule_3", "verified + untried < total", "verified < total"),
    mutant("agent_standing", "rule_4", "    if not complete:\n", "    if False:\n"),
]


def copied(package: Path) -> Path:
    """A copy of the pure rooms below ``package``; only they are needed, and only they are imported."""
    for room in ("contract", "decisions"):
        shutil.copytree(PACKAGE / room, package / room, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(PACKAGE / "__init__.py", package)
    return package


def run(package: Path, module: str, rule: str) -> tuple[int, str]:
    """Run the tests of ``rule`` on ``package``: exit code and output."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        str(TESTS / f"test_{module}.py"),
        "-k",
        rule,
        "-x",
        "-q",
        "-rf",
    ]
    plain = ["-c", os.devnull, "--noconftest", "--import-mode=importlib", "-p", "no:cacheprovider"]
    paths = ["-o", f"pythonpath={package.parent} {SUPPORT}"]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    done = subprocess.run(
        [*command, *plain, *paths],
        cwd=package.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("broken", MUTANTS, ids=[f"{broken.module} {broken.rule}" for broken in MUTANTS])
def test_a_broken_rule_fails_a_test_that_names_it(broken: Mutant, tmp_path: Path) -> None:
    package = copied(tmp_path / "clusterconform")
    source = package / "decisions" / f"{broken.module}.py"
    text = source.read_text()
    assert text.count(broken.fragment) == 1, "the mutant no longer fits the source; adapt it"
    source.write_text(text.replace(broken.fragment, broken.replacement))
    code, output = run(package, broken.module, broken.rule)
    assert code == SOME_FAILED, output
    assert re.search(rf"^FAILED .*::test_\w*{broken.rule}", output, re.MULTILINE), output


@pytest.mark.parametrize("module", ["identity", "conformance", "conditions", "contention"])
def test_an_unbroken_copy_fails_nothing(module: str, tmp_path: Path) -> None:
    package = copied(tmp_path / "clusterconform")
    code, output = run(package, module, " or ".join(broken.rule for broken in MUTANTS))
    assert code == 0, output


@pytest.mark.parametrize("module", ["identity", "conformance", "conditions"])
def test_every_rule_at_the_head_of_a_module_has_a_mutant(module: str) -> None:
    head = importlib.import_module(f"clusterconform.decisions.{module}").__doc__ or ""
    rules = [f"rule_{number}" for number in re.findall(r"^(\d+)\. ", head, re.MULTILINE)]
    assert rules
    assert [broken.rule for broken in MUTANTS if broken.module == module] == rules
