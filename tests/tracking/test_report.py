"""The W&B report: its structure without a server, and its saving by the real client."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT
from rectifiers.results.tables import load
from rectifiers.runtime.errors import InputError
from rectifiers.tracking.report import build, save, specification
from tracking.stub import Stub


@pytest.fixture(scope="module")
def records() -> list[dict[str, Any]]:
    return load(ROOT / "results" / "records")


def blocks(document: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [block for block in document["blocks"] if block["type"] == kind]


def panels(document: dict[str, Any]) -> list[dict[str, Any]]:
    grids = blocks(document, "panel-grid")
    return [
        panel for grid in grids for panel in grid["metadata"]["panelBankSectionConfig"]["panels"]
    ]


def unnamed(node: Any) -> Any:
    """A document without the ids that the client draws."""
    if isinstance(node, dict):
        return {
            key: unnamed(value)
            for key, value in node.items()
            if key not in ("id", "__id__", "refId", "ref")
        }
    return [unnamed(item) for item in node] if isinstance(node, list) else node


def test_a_table_has_text_runs_and_panels(
    records: list[dict[str, Any]],
) -> None:
    document = specification(build(records, entity="e", project="p", group="table2"))
    assert [block["children"][0]["text"] for block in blocks(document, "heading")] == ["Table 2"]
    text = blocks(document, "markdown-block")[-1]["content"]
    committed = (ROOT / "results" / "TABLES.md").read_text()
    estimates = re.findall(r"[-+]?[\d.]+ \([^()]*n = \d+\)", text)
    assert estimates
    for estimate in estimates:
        assert estimate in committed  # the numbers of TABLES.md, n and intervals with them
    assert "### Table 2 on digits" in text
    assert "Table 4" not in text
    (runs,) = blocks(document, "panel-grid")[0]["metadata"]["runSets"]
    assert [key["name"] for key in runs["grouping"]] == ["activation.value", "init.value"]
    (only,) = runs["filters"]["filters"]
    assert (only["key"], only["op"], only["value"]) == (
        {"section": "run", "name": "group"},
        "=",
        "table2",
    )
    shown_panels = json.dumps(panels(document))
    table2 = [r for r in records if r.choices["experiment"].startswith("table2/")]
    protocols = {name for record in table2 for name in record.protocols}
    for name in protocols:
        assert f"test/{name}/error_top1" in shown_panels
        assert f"test/{name}/error_top5" in shown_panels
    for shown in ("train/loss", "val/error_top1", "slope/"):
        assert shown in shown_panels


def test_the_full_report_has_every_group_and_is_reproducible(records: list[dict[str, Any]]) -> None:
    document = specification(build(records, entity="e", project="p"))
    groups = {record.choices["experiment"].partition("/")[0] for record in records}
    filters = [
        g["metadata"]["runSets"][0]["filters"]["filters"][0]["value"]
        for g in blocks(document, "panel-grid")
    ]
    assert set(filters) == groups
    assert unnamed(specification(build(records, entity="e", project="p"))) == unnamed(document)


def test_a_group_without_records_is_named(records: list[dict[str, Any]]) -> None:
    with pytest.raises(InputError, match=r"--table=table9 has no records; give one of: .*table2"):
        build(records, entity="e", project="p", group="table9")


def test_a_report_is_saved_and_updated_in_place(
    records: list[dict[str, Any]], server: Stub, tmp_path: Path
) -> None:
    kept = tmp_path / "reports.json"
    settings = {"entity": None, "project": "ours", "group": "table2", "kept": kept}
    url = save(records, **settings)  # type: ignore[arg-type]
    assert url.endswith("/stub/ours/reports/Rectifiers,-Table-2--view0")
    ((name, view),) = server.views.items()
    assert (view["entityName"], view["projectName"], view["type"]) == ("stub", "ours", "runs")
    expected = specification(build(records, entity="stub", project="ours", group="table2"))
    assert unnamed(json.loads(view["spec"])) == unnamed(expected)
    assert "CreateProject" in server.operations()
    save(records, **settings)  # type: ignore[arg-type]
    assert list(server.views) == [name]
