"""The W&B report: its structure without a server, and its saving by the real client."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT, load_script
from rectifiers.results.tables import load
from rectifiers.results.wandb_report import build, save, specification
from refusals import refused


@pytest.fixture(scope="module")
def records() -> list[dict[str, Any]]:
    return load(ROOT / "results" / "records")


def unnamed(node: Any) -> Any:
    """A document without the ids that the client draws."""
    if isinstance(node, dict):
        return {
            key: unnamed(value)
            for key, value in node.items()
            if key not in ("id", "__id__", "refId", "ref")
        }
    return [unnamed(item) for item in node] if isinstance(node, list) else node


def test_a_group_without_records_is_named(records: list[dict[str, Any]]) -> None:
    with refused(r"--table=table9 has no records; give one of: .*table2"):
        build(records, entity="e", project="p", group="table9")


def test_a_report_is_saved_and_updated_in_place(records, server, tmp_path) -> None:
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


def test_a_report_takes_claims_runs_on_request(server, monkeypatch, tmp_path: Path) -> None:
    report = load_script("report")
    results = tmp_path / "results"
    owner = results / "claims" / "imagenette_table2"
    shutil.copytree(ROOT / "results" / "records", results / "records")
    owner.mkdir(parents=True)
    shutil.copy(ROOT / "results" / "claims" / owner.name / "records.jsonl.xz", owner)
    monkeypatch.setattr(report, "RESULTS", results)
    monkeypatch.chdir(tmp_path)

    columns = ("ours, digits", "ours, imagenette")
    for options, count in (([], 1), (["--claims"], 2)):
        monkeypatch.setattr(sys, "argv", ["report.py", "wandb", "--table", "table2", *options])
        report.main()
        ((_, view),) = server.views.items()
        assert [column in view["spec"] for column in columns].count(True) == count
        assert columns[0] in view["spec"]


@pytest.mark.parametrize("options", [[], ["--claims"]])
def test_a_report_without_account_reads_no_records(
    options: list[str], monkeypatch, tmp_path: Path, capsys
) -> None:
    report = load_script("report")
    monkeypatch.setattr(report.tables, "load", lambda _: pytest.fail("records were read"))
    monkeypatch.setattr(sys, "argv", ["report.py", "wandb", *options])
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        report.main()
    assert ended.value.code == 1
    assert "wandb login" in capsys.readouterr().err
