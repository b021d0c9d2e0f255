"""The CRD, and what the code knows of the same things: names, words, defaults, bounds, written fields."""

import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml

from clusterconform.contract import names
from clusterconform.contract.profile import (
    AGENT_CAPABILITIES,
    VIRTUAL_CAPABILITIES,
    Adoption,
    Capability,
    Enforcement,
    NodeClass,
    Refusal,
    read_profile,
)
from clusterconform.contract.settings import (
    AddressMode,
    AddressReconcile,
    NodeGC,
    ProbeMode,
    ReapingMode,
    RuntimeProbe,
)
from clusterconform.decisions.summary import SAMPLES
from clusterconform.handlers.preflight import missing_paths

Json = dict[str, Any]

CRD: Final[Json] = yaml.safe_load((Path(__file__).parents[2] / "crds" / "runtimeprofiles.yaml").read_text())
VERSION: Final[Json] = CRD["spec"]["versions"][0]
ROOT: Final[Json] = VERSION["schema"]["openAPIV3Schema"]
SPEC: Final[Json] = ROOT["properties"]["spec"]
BLOCKS: Final[dict[str, type[msgspec.Struct]]] = {
    "nodeGC": NodeGC,
    "runtimeProbe": RuntimeProbe,
    "addressReconcile": AddressReconcile,
}
BY_CLASS: Final = [
    "runtimeLabelValue",
    "nodeNameSuffix",
    "providerTaint",
    "subjectToNodeGC",
    "subjectToRuntimeProbe",
    "subjectToAddressReconcile",
]


def walk(schema: Json, path: str) -> Iterator[tuple[str, Json]]:
    """Every field below ``schema``, and what stands in lists."""
    for name, child in schema.get("properties", {}).items():
        yield f"{path}.{name}".lstrip("."), child
        yield from walk(child, f"{path}.{name}")
    if "items" in schema:
        yield f"{path}[]".lstrip("."), schema["items"]
        yield from walk(schema["items"], f"{path}[]")


FIELDS: Final = dict(walk(ROOT, ""))
SPEC_FIELDS: Final = dict(walk(SPEC, ""))
SETTINGS: Final = {path: schema for path, schema in SPEC_FIELDS.items() if path.partition(".")[0] in BLOCKS}
INTEGERS: Final = [path for path, schema in SETTINGS.items() if schema["type"] == "integer"]


def rules(schema: Json) -> list[Json]:
    return list(schema.get("x-kubernetes-validations", []))


def matched(schema: Json) -> list[str]:
    return [found for rule in rules(schema) for found in re.findall(r"matches\('([^']+)'\)", rule["rule"])]


def durations() -> list[str]:
    return [path for path, schema in SETTINGS.items() if "duration(self)" in str(rules(schema))]


def patterned() -> list[str]:
    return [
        path
        for path, schema in SPEC_FIELDS.items()
        if schema["type"] == "string" and path not in durations() and matched(schema)
    ]


# What has to be written beside a setting so that it may be at either of its bounds.
BESIDE: Final[dict[str, Json]] = {
    "nodeGC.grace": {"interval": "10s"},
    "nodeGC.interval": {"grace": "8760h"},
}


def model_takes(path: str, value: object) -> bool:
    """Whether our own reading takes an agent whose field ``path`` is ``value``."""
    spec: Json = {"backend": "k3s", "class": "agent", "capabilities": list(map(str, AGENT_CAPABILITIES))}
    block, _, field = path.rpartition(".")
    change = {block: {**BESIDE.get(path, {}), field: value}} if block else {field: value}
    document = {"metadata": {"name": value if path == "backend" and value else "k3s"}, "spec": spec | change}
    return not isinstance(read_profile(document).contract, Refusal)


def test_the_names_are_those_of_the_code() -> None:
    spec = CRD["spec"]
    assert CRD["metadata"]["name"] == names.CRD_NAME
    assert (spec["group"], VERSION["name"]) == (names.GROUP, names.VERSION)
    assert (spec["names"]["kind"], spec["names"]["plural"]) == (names.KIND, names.PLURAL)
    assert (spec["scope"], spec["names"]["shortNames"]) == ("Cluster", ["rtp"])
    assert "status" in VERSION["subresources"]


def test_the_code_finds_every_field_that_it_writes() -> None:
    assert missing_paths(CRD) == []


def test_there_is_room_for_as_many_samples_as_the_code_writes() -> None:
    assert FIELDS["status.samples"]["maxItems"] == SAMPLES


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_has_the_fields_of_the_code(block: str) -> None:
    assert list(SPEC["properties"][block]["properties"]) == list(BLOCKS[block].__struct_encode_fields__)


def test_required_is_only_what_cannot_be_worked_out() -> None:
    required = {path: schema["required"] for path, schema in SPEC_FIELDS.items() if "required" in schema}
    assert (SPEC["required"], required) == (["backend", "class", "capabilities"], {})


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("class", NodeClass),
        ("runtimeLabelValue", NodeClass),
        ("capabilities[]", Capability),
        ("enforcement", Enforcement),
        ("adopt", Adoption),
        ("nodeGC.mode", ReapingMode),
        ("runtimeProbe.mode", ProbeMode),
        ("addressReconcile.mode", AddressMode),
    ],
)
def test_the_words_are_those_of_the_code(path: str, words: type[StrEnum]) -> None:
    assert SPEC_FIELDS[path]["enum"] == [word.value for word in words]


def test_no_word_is_one_that_yaml_reads_as_a_truth_value() -> None:
    words = [(path, word) for path, schema in FIELDS.items() for word in schema.get("enum", [])]
    assert [(path, word) for path, word in words if not isinstance(word, str)] == []


@pytest.mark.parametrize("path", SETTINGS)
def test_the_default_of_a_setting_is_that_of_the_code(path: str) -> None:
    block, _, field = path.partition(".")
    if not field:
        # A default on the block would put it on virtual profiles, where it is refused.
        assert "default" not in SETTINGS[path]
        return
    settings = BLOCKS[block]()
    attributes = dict(zip(settings.__struct_encode_fields__, settings.__struct_fields__, strict=True))
    value = getattr(settings, attributes[field])
    assert SETTINGS[path]["default"] == getattr(value, "text", value)


def test_other_fields_have_the_defaults_of_the_code_or_none() -> None:
    spec = {"backend": "vk-x", "class": "virtual", "capabilities": list(map(str, VIRTUAL_CAPABILITIES))}
    contract = read_profile({"metadata": {"name": "vk-x"}, "spec": spec}).contract
    assert not isinstance(contract, Refusal)
    defaults = {
        path: schema["default"]
        for path, schema in SPEC_FIELDS.items()
        if "default" in schema and path not in SETTINGS
    }
    assert defaults == {
        "enforcement": contract.enforcement,
        "providerTaintValue": contract.provider_taint_value,
        "adopt": contract.adopt,
    }


@pytest.mark.parametrize("path", INTEGERS)
def test_the_code_has_the_bounds_of_a_number(path: str) -> None:
    low, high = SETTINGS[path]["minimum"], SETTINGS[path]["maximum"]
    block, _, field = path.partition(".")
    info = msgspec.inspect.type_info(BLOCKS[block])
    assert isinstance(info, msgspec.inspect.StructType)
    kind = next(seen.type for seen in info.fields if seen.encode_name == field)
    assert isinstance(kind, msgspec.inspect.IntType)
    assert (kind.ge, kind.le) == (low, high)


@pytest.mark.parametrize("path", durations())
def test_the_code_has_the_bounds_of_a_duration(path: str) -> None:
    (rule,) = rules(SETTINGS[path])
    low = next(iter(re.findall(r"duration\(self\) >= duration\('(\w+)'\)", rule["rule"])), "0s")
    (high,) = re.findall(r"duration\(self\) <= duration\('(\w+)'\)", rule["rule"])
    assert f"from {low} to {high}" in rule["message"]
    assert model_takes(path, low)
    assert model_takes(path, high)
    assert not model_takes(path, f"{high}1ms")
    below = {"1s": "999ms", "10s": "9.999s", "1m": "59.999s"}
    assert low == "0s" or not model_takes(path, below[low])


def test_every_duration_is_read_by_the_same_rule() -> None:
    patterns = {found for path in durations() for found in matched(SETTINGS[path])}
    patterns |= set(matched(SPEC["properties"]["nodeGC"]))
    assert patterns == {"^([0-9]{1,6}([.][0-9]{1,3})?(ms|s|m|h))+$"}
    assert {SETTINGS[path]["maxLength"] for path in durations()} == {16}


TEXTS: Final = ["", "a", "-", "-a", "a-", "A", "a.b", "a_b", "a\n", "-a\n", "é", "a b", "a/b", "1", "-1"]


@pytest.mark.parametrize("text", TEXTS, ids=repr)
@pytest.mark.parametrize("path", patterned())
def test_the_code_takes_the_same_texts(path: str, text: str) -> None:
    (pattern,) = matched(SPEC_FIELDS[path])
    # RE2, in which $ is the very end of the text, and Python's fullmatch say the same.
    taken = re.fullmatch(pattern.removeprefix("^").removesuffix("$"), text, re.ASCII) is not None
    assert model_takes(path, text) == taken


BOUNDED: Final = [path for path, schema in SPEC_FIELDS.items() if "maxLength" in schema]


@pytest.mark.parametrize("path", sorted({*BOUNDED} - {*durations()}))
def test_the_code_takes_texts_of_the_same_length(path: str) -> None:
    length = SPEC_FIELDS[path]["maxLength"]
    first = "-" if path == "nodeNameSuffix" else "x"
    assert model_takes(path, first + "x" * (length - 1))
    assert not model_takes(path, first + "x" * length)


@pytest.mark.parametrize("path", FIELDS)
def test_every_field_is_described_in_sentences(path: str) -> None:
    if path == "spec.capabilities[]":
        return  # the list says it; kubectl explain does not show the words of a list
    description = FIELDS[path]["description"]
    assert description.endswith(".")
    assert description[0].isupper()


@pytest.mark.parametrize("path", SPEC_FIELDS)
def test_a_description_names_what_kubectl_explain_does_not_show(path: str) -> None:
    """Neither defaults nor bounds nor words are shown by it: only the text is."""
    schema = SPEC_FIELDS[path]
    description = SPEC_FIELDS[path.removesuffix("[]")]["description"]
    if "default" in schema:
        default = {True: "true", False: "false", "": "empty"}.get(schema["default"], schema["default"])
        assert re.search(rf"Default {re.escape(str(default))}\b", description)
    for word in schema.get("enum", []):
        assert re.search(rf"\b{word}\b", description)
    if schema["type"] == "integer":
        assert f"from {schema['minimum']} to {schema['maximum']}" in description
    if path in durations():
        low, high = re.findall(r"from (\w+) to (\w+)", rules(schema)[0]["message"])[0]
        assert re.search(rf"from {low}(, [\w ]+,)? to {high}\b", description)
    elif "maxLength" in schema and "enum" not in schema:
        assert str(schema["maxLength"]) in description


@pytest.mark.parametrize("path", FIELDS)
def test_nothing_in_an_object_is_without_bound(path: str) -> None:
    schema = FIELDS[path]
    if schema["type"] == "string":
        assert {*schema} & {"maxLength", "enum", "format"}
    if schema["type"] == "array":
        assert "maxItems" in schema
        assert schema["x-kubernetes-list-type"] in {"set", "map"}
    if schema["type"] == "integer":
        assert schema["format"] in {"int32", "int64"}
        assert "minimum" in schema


def test_a_rule_of_a_class_names_its_number_and_its_field() -> None:
    for rule in rules(SPEC):
        text = str(rule.get("messageExpression", rule["message"]))
        number = "R3" if "self.class != 'agent'" in rule["rule"] else "R4"
        assert f"({number})" in text
        assert f"({number})" in rule["message"]
        assert rule["fieldPath"].removeprefix(".") in SPEC["properties"]


def test_only_the_name_is_judged_at_the_root() -> None:
    """A rule there that an old object breaks would refuse its status writes as well."""
    assert [rule["rule"] for rule in rules(ROOT)] == ["self.metadata.name == self.spec.backend"]


def test_what_follows_from_the_class_has_no_default() -> None:
    assert [field for field in BY_CLASS if "default" in SPEC_FIELDS[field]] == []
