"""A record with something amiss anywhere in it is refused, or shown; no table falls over
it."""

import copy
import io
import json
from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console

from conftest import ROOT
from made_up import altered
from rectifiers.results.frame import exclusion_reason
from rectifiers.results.listing import (
    Run,
    compare,
    comparison_table,
    facts,
    runs_table,
    summaries,
    usual_protocol,
)
from rectifiers.results.run_tables import print_record
from rectifiers.results.tables import document
from rectifiers.runs import record as records
from rectifiers.runs.identity import run_id
from rectifiers.runs.record import Record
from rectifiers.tracking import loggers

GONE = object()  # in the place of a value: its key is not there
WRONG = (None, "</script>[red]", 0, [], {}, GONE)


def places(node: Any, at: tuple = ()) -> Iterator[tuple]:
    """Every place of a record; of a list, its first item's."""
    items: Any = node.items() if isinstance(node, dict) else ()
    if isinstance(node, list):
        items = list(enumerate(node))[:1]
    for key, item in items:
        yield (*at, key)
        yield from places(item, (*at, key))


def show_everywhere(base: Record, record: Record) -> None:
    """Make everything that is made of a record."""
    run = Run(record, ROOT / "results" / "records" / "x.json")
    protocol = usual_protocol([run])
    rows = summaries([run], protocol)
    json.dumps(rows, allow_nan=False)
    runs_table(rows, protocol)
    facts(record)
    json.dumps(compare(base, record), allow_nan=False)
    comparison_table(compare(base, record))
    document([record] if exclusion_reason(record) is None else [])
    loggers.results(record)
    print_record(record, Console(file=io.StringIO()))


@pytest.mark.process
def test_malformed_records_are_refused_or_shown() -> None:
    path = ROOT / "results" / "records" / "0a3802792865.json"  # Table 2's PReLU on digits
    base = altered(records.load(path), {"science.trainer.max_epochs": 2})
    whole = base.model_dump(mode="json")
    whole["init_report"] = whole["init_report"][:2]
    whole["protocols"] = {name: whole["protocols"][name] for name in list(whole["protocols"])[:2]}
    usable = refused = 0
    for *above, last in places(whole):
        for wrong in WRONG:
            changed = copy.deepcopy(whole)
            node = changed
            for key in above:
                node = node[key]
            node[last] = wrong
            if wrong is GONE:
                del node[last]
            if "science" in changed and ("science" in above or last == "science"):
                changed["run"] = run_id(changed["science"])
            try:
                record = records.parse(json.dumps(changed))
            except ValueError:
                refused += 1
            else:
                show_everywhere(base, record)
                usable += 1
    assert min(refused, usable) > 100
