from pathlib import Path
from typing import Any

import yaml

from clusterconform.contract.matrix import MATRIX
from clusterconform.contract.profile import manifest_of

FILE = Path(__file__).parents[2] / "crds" / "profiles.yaml"

REGENERATE = """\
crds/profiles.yaml and the matrix differ. Where the matrix is right, print the documents anew, and put them
below the comment at the top of the file:

  python -c 'import yaml; from clusterconform.contract.matrix import MATRIX
  from clusterconform.contract.profile import manifest_of
  print(yaml.safe_dump_all(map(manifest_of, MATRIX.values()), sort_keys=False))'
"""


def documents() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(FILE.read_text()))


def test_the_shipped_profiles_are_those_of_the_matrix() -> None:
    assert documents() == [manifest_of(profile) for profile in MATRIX.values()], REGENERATE


def test_the_fields_stand_in_the_order_of_the_matrix() -> None:
    """Whoever reads the file reads the same thing as ``clusterconform matrix`` prints."""
    orders = [(list(document), list(document["spec"])) for document in documents()]
    wanted = [manifest_of(profile) for profile in MATRIX.values()]
    assert orders == [(list(document), list(document["spec"])) for document in wanted], REGENERATE


def test_the_file_says_first_that_applying_it_overwrites_edits() -> None:
    comment = FILE.read_text().partition("apiVersion:")[0]
    assert "overwrites edits" in comment
    assert "creates the built-in profiles once" in comment
