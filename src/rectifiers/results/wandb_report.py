"""A W&B report: a pure function from records to a document, and its saving by W&B's client.

It uses one private name, `Report._to_model` of wandb-workspaces 0.4, which has no public one for
the stored document."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import wandb_workspaces.reports.v2 as wr

from rectifiers.results.documents import Table
from rectifiers.results.tables import document
from rectifiers.runs.record import Record
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import write_text
from rectifiers.runtime.schema import JsonObject
from rectifiers.tracking.loggers import group as group_of
from rectifiers.tracking.loggers import results
from rectifiers.tracking.wandb_logger import (
    client_environment,
    first_sentence,
    load_client,
    offline_reason,
)

BY_LAYER = {
    "learned slopes": "slope",
    "learned parameters of activations": "activation",
    "mean responses": "response_mean",
    "share of positive responses": "active_share",
    "dead units": "dead_units",
}
NOT_SAVED = "no report was saved ({}); --out=<file> writes the document to a file"
TITLES = {"text": "Section 2.2"}  # of groups whose tables have another name
INTRODUCTION = (
    "Our errors beside the numbers that *Delving Deep into Rectifiers* (He, Zhang, Ren and Sun, "
    "2015) prints. The tables are made from the records, with n and 95 % intervals over seeds; the "
    "panels show the runs of this project, one bar or line for each activation and initialiser. "
    "Other data than ImageNet says nothing about the paper."
)


def build(
    records: Sequence[Record], *, entity: str, project: str, group: str | None = None
) -> wr.Report:
    """Return the report of all tables, or of the runs of one `group` (table2, figure3 ...); nothing
    is sent."""
    groups = sorted({name for record in records if (name := group_of(record.choices))})
    if group is not None and group not in groups:
        raise InputError(f"--table={group} has no records; give one of: {', '.join(groups)}")

    tables_of_all = document(records)
    blocks: list[Any] = [wr.TableOfContents(), wr.P(""), wr.MarkdownBlock(text=INTRODUCTION)]
    for name in [group] if group else groups:
        runs = [record for record in records if group_of(record.choices) == name]
        tables = [table for table in tables_of_all if _is_of(table, name)]
        blocks += [
            wr.H1(text=_title(name)),
            wr.MarkdownBlock(text="\n\n".join(t.markdown() for t in tables)),
            _panels(name, runs),
        ]

    title = f"Rectifiers, {_title(group) if group else 'all tables'}"
    words = f"From {len(records)} records, by scripts/report.py wandb"
    place = {"entity": entity, "project": project}
    return wr.Report(title=title, description=words, blocks=blocks, width="fluid", **place)


def _title(group: str) -> str:
    """`table2` as it is printed: Table 2."""
    word = group.rstrip("0123456789")
    return TITLES.get(group, f"{word.capitalize()} {group.removeprefix(word)}")


def _is_of(table: Table, group: str) -> bool:
    title = _title(group)
    return table.title.startswith(title) and not table.title[len(title) :][:1].isdigit()


def _panels(group: str, runs: Sequence[Record]) -> wr.PanelGrid:
    """Bars of every protocol's errors, curves and slopes."""
    bars = [
        wr.BarPlot(
            title=f"{key.removeprefix('test/')}, %",
            metrics=[wr.SummaryMetric(key)],
            groupby=wr.Config("activation"),
            groupby_aggfunc="mean",
            groupby_rangefunc="minmax",
        )
        for key in sorted({key for record in runs for key in results(record)})
    ]
    curves = [
        wr.LinePlot(title="top-1 error on val, centre view, %", x="epoch", y=["val/error_top1"]),
        wr.LinePlot(title="training loss", x="epoch", y=["train/loss"], log_y=True),
    ]
    layers = [
        wr.LinePlot(title=f"{title} by layer", x="epoch", metric_regex=f"{key}/.*")
        for title, key in BY_LAYER.items()
    ]

    # By the run's own keys: with an entity and a project the client would ask the server what they
    # are.
    runset = wr.Runset(
        name=_title(group),
        filters=f"Metric('Group') == '{group}'",
        groupby=["config.activation", "config.init"],
    )
    return wr.PanelGrid(runsets=[runset], panels=[*bars, *curves, *layers])


def specification(report: wr.Report) -> JsonObject:
    """Return the document as W&B stores it."""
    model = report._to_model()
    return json.loads(model.spec.model_dump_json(by_alias=True, exclude_none=True))


def check_account(folder: Path) -> None:
    """Raise an InputError where W&B cannot save a report; the client's files go into `folder`."""
    with client_environment(folder):
        try:
            load_client()
            reason = offline_reason()
        except Exception as error:
            reason = first_sentence(error)
    if reason:
        raise InputError(NOT_SAVED.format(reason))


def save(
    records: Sequence[Record], *, entity: str | None, project: str, group: str | None, kept: Path
) -> str:
    """Save the report by W&B and return its address; `kept` holds the ids of those saved before,
    which are updated in place."""
    with client_environment(kept.parent):
        try:
            wandb = load_client()
            owner = entity or os.environ.get("WANDB_ENTITY") or wandb.Api().default_entity
            if owner is None:
                raise RuntimeError("the account has no default entity; give --entity=<name>")

            report = build(records, entity=owner, project=project, group=group)
            ids = json.loads(kept.read_text()) if kept.exists() else {}
            key = f"{owner}/{project}/{report.title}"
            report.id = ids.get(key, "")
            report.save()
        except InputError:
            raise
        except Exception as error:
            raise InputError(NOT_SAVED.format(first_sentence(error))) from error
        write_text(kept, json.dumps({**ids, key: report.id}, indent=1) + "\n")
        return report.url
