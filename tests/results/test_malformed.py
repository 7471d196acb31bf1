"""A record with something amiss anywhere in it is refused, or shown; neither the page nor a table falls over it."""

import copy
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from conftest import ROOT
from rectifiers.results.comparison import compare
from rectifiers.results.eligibility import exclusion_reason
from rectifiers.results.listing import Found, facts, usual_protocol
from rectifiers.results.page.blocks import Material
from rectifiers.results.page.runs import details, rows
from rectifiers.results.page.sections import SECTIONS
from rectifiers.results.tables import document
from rectifiers.results.terminal import list_runs, print_comparison
from rectifiers.runs import record as records
from rectifiers.runs.shape import validate
from rectifiers.tracking import payload

WRONG = (None, "</script>[red]", 0, [], {})


def places(node: Any, at: tuple = ()) -> Iterator[tuple]:
    """Every place of a record; of a list, its first item's."""
    items = node.items() if isinstance(node, dict) else list(enumerate(node))[:1] if isinstance(node, list) else ()
    for key, item in items:
        yield (*at, key)
        yield from places(item, (*at, key))


def shown(base: dict[str, Any], record: dict[str, Any]) -> None:
    """Everything that is made of a record."""
    found, silent = Found(record, ROOT / "results" / "records" / "x.json"), Console(file=io.StringIO())
    list_runs([found], usual_protocol([found]), silent)
    facts(record)
    json.dumps(compare(base, record), allow_nan=False)
    print_comparison(compare(base, record), silent)
    rows([found], Path("/page/index.html"))
    details([found])
    material = Material([found], document([record] if exclusion_reason(record) is None else []))
    for section in SECTIONS:
        section(material)
    payload.summary(record)
    payload.comparison_rows(record)


def test_whatever_is_wrong_in_a_record_it_is_refused_or_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rectifiers.results.page.runs.command", lambda record: None)  # composes by Hydra, for long
    path = next(p for p in sorted((ROOT / "results" / "records").glob("*.json")) if 'table2/prelu"' in p.read_text())
    base = records.load(path)
    base["history"], base["ledger"] = base["history"][:2], base["ledger"][:2]
    base["protocols"] = {name: base["protocols"][name] for name in list(base["protocols"])[:2]}
    usable = refused = 0
    for *above, last in places(base):
        for wrong in WRONG:
            record = copy.deepcopy(base)
            node = record
            for key in above:
                node = node[key]
            node[last] = wrong
            if validate(record):
                refused += 1
            else:
                shown(base, record)
                usable += 1
    assert min(refused, usable) > 100
