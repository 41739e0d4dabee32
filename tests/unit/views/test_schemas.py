from __future__ import annotations

import json

import jsonschema
import pytest

from bathyscope.records.report_finding import ReportFinding
from bathyscope.views import as_text

from . import golden, samples, schemas

FINDINGS = {
    "ladder": samples.ladder,
    "compare": samples.compare,
    "recording": samples.recording,
    "account": samples.explained,
    "accounts": samples.accounts,
    "activity": samples.activity,
    "collect": samples.collected,
    "report": lambda: ReportFinding(samples.ladder(), samples.collected()),
}
# Their tests hold what the verbs print of them against the schema: tests/unit/size, bench, studies.
OF_VERBS = {"cache_plan", "prediction", "size", "study"}


def test_json_of_every_finding_is_as_its_schema_says() -> None:
    held = {schemas.check(as_text(make(), "json")) for make in FINDINGS.values()}
    every = {reference["$ref"].rpartition("/")[2] for reference in schemas.SCHEMA["oneOf"]}
    assert held | OF_VERBS == every


@pytest.mark.parametrize("kind", ["size", "study"])
def test_json_that_verbs_print_is_as_its_schema_says(kind: str) -> None:
    assert schemas.check((golden.DIRECTORY / f"{kind}.json").read_text()) in OF_VERBS


def test_a_key_that_no_schema_has_is_an_error() -> None:
    plain = json.loads(as_text(samples.activity(), "json"))
    plain["tables"][0]["columns"][0]["name"] = "image"
    with pytest.raises(jsonschema.ValidationError, match="name"):
        schemas.check(json.dumps(plain))


def test_rows_have_the_keys_of_their_columns() -> None:
    (table,) = json.loads(as_text(samples.activity(), "json"))["tables"]
    keys = [column["key"] for column in table["columns"]]
    assert all(list(row) == keys for row in table["rows"])
    assert keys[2] == "iops"
    assert table["rows"][0]["iops"] == 20576.1
