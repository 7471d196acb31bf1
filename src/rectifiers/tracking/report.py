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
from rectifiers.runs.sections import Wandb
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import write_text
from rectifiers.runtime.schema import checked
from rectifiers.tracking import payload
from rectifiers.tracking.client import (
    call_with_timeout,
    environment,
    first_sentence,
    offline_reason,
)

WAIT_S = 60
TITLES = {"text": "Section 2.2"}  # of groups whose tables have another name
INTRODUCTION = (
    "Our errors beside the numbers that *Delving Deep into Rectifiers* (He, Zhang, Ren and "
    "Sun, 2015) prints. The "
    "tables are made from the records, with n and 95 % intervals over seeds; the panels show "
    "the runs of this project, "
    "one bar or line for each activation and initialiser. Other data than ImageNet says "
    "nothing about the paper."
)


def build(
    found: Sequence[Record], *, entity: str, project: str, group: str | None = None
) -> wr.Report:
    """Return the report of all tables, or of the runs of one `group` (table2, figure3 ...); nothing
    is sent.

    Raises:
        InputError: where no record is of that group.
    """
    if not found:
        raise InputError(
            "results/records holds no records; run an experiment, then scripts/report.py collect"
        )
    checked(Wandb, {"_target_": "", "project": project}, "--")
    groups = sorted({name for record in found if (name := payload.group(record.choices))})
    if group is not None and group not in groups:
        raise InputError(f"--table={group} has no records; give one of: {', '.join(groups)}")
    shown = [group] if group is not None else groups
    document_tables = document(found)
    blocks: list[Any] = [wr.TableOfContents(), wr.P(""), wr.MarkdownBlock(text=INTRODUCTION)]
    for name in shown:
        runs = [record for record in found if payload.group(record.choices) == name]
        tables = [table for table in document_tables if _is_of(table, name)]
        blocks += [
            wr.H1(text=_title(name)),
            wr.MarkdownBlock(text="\n\n".join(t.markdown() for t in tables)),
            _panels(name, runs),
        ]
    title = "Rectifiers, all tables" if group is None else f"Rectifiers, {_title(group)}"
    return wr.Report(
        entity=entity,
        project=project,
        title=title,
        width="fluid",
        blocks=blocks,
        description=f"From {len(found)} records, by scripts/report.py wandb",
    )


def _title(group: str) -> str:
    """`table2` as it is printed: Table 2."""
    word = group.rstrip("0123456789")
    return TITLES.get(group, f"{word.capitalize()} {group.removeprefix(word)}")


def _is_of(table: Table, group: str) -> bool:
    title = _title(group)
    return table.title.startswith(title) and not table.title[len(title) :][:1].isdigit()


def _panels(group: str, runs: Sequence[Record]) -> wr.PanelGrid:
    """Bars of every protocol's errors, curves and slopes."""
    protocols = sorted({name for record in runs for name in record.protocols})
    bars = [
        wr.BarPlot(
            title=f"{protocol}, top-{k} error, %",
            metrics=[wr.SummaryMetric(f"test/{protocol}/error_top{k}")],
            groupby=wr.Config("activation"),
            groupby_aggfunc="mean",
            groupby_rangefunc="minmax",
        )
        for protocol in protocols
        for k in (1, 5)
        if any(
            k == 1 or r.protocols[protocol].top5_error_pct is not None
            for r in runs
            if protocol in r.protocols
        )
    ]
    curves = [
        wr.LinePlot(title="top-1 error on val, centre view, %", x="epoch", y=["val/error_top1"]),
        wr.LinePlot(title="training loss", x="epoch", y=["train/loss"], log_y=True),
        wr.LinePlot(title="learned slopes by layer", x="epoch", metric_regex="slope/.*"),
        wr.LinePlot(title="mean responses by layer", x="epoch", metric_regex="response_mean/.*"),
        wr.LinePlot(
            title="share of positive responses by layer", x="epoch", metric_regex="active_share/.*"
        ),
        wr.LinePlot(title="dead units by layer", x="epoch", metric_regex="dead_units/.*"),
    ]
    # By the run's own keys: with an entity and a project the client would ask the server what they
    # are.
    runset = wr.Runset(
        name=_title(group),
        filters=f"Metric('Group') == '{group}'",
        groupby=["config.activation", "config.init"],
    )
    return wr.PanelGrid(runsets=[runset], panels=[*bars, *curves])


def specification(report: wr.Report) -> dict[str, Any]:
    """Return the document as W&B stores it."""
    model = report._to_model()
    return json.loads(model.spec.model_dump_json(by_alias=True, exclude_none=True))


def save(
    found: Sequence[Record], *, entity: str | None, project: str, group: str | None, kept: Path
) -> str:
    """Save the report and return its address; `kept` holds the ids of those saved before, which are
    updated in place.

    Raises:
        InputError: where W&B cannot be reached or refuses it.
    """
    with environment(kept.parent):
        try:
            reason = offline_reason()
            if reason:
                raise RuntimeError(reason)
            return call_with_timeout(WAIT_S, lambda: _save(found, entity, project, group, kept))
        except InputError:
            raise
        except Exception as error:
            reason = first_sentence(error)
            raise InputError(
                f"no report was saved ({reason}); --out=<file> writes the document to a file"
            ) from error


def _save(
    found: Sequence[Record], entity: str | None, project: str, group: str | None, kept: Path
) -> str:
    import wandb

    owner = entity or os.environ.get("WANDB_ENTITY") or wandb.Api().default_entity
    if owner is None:
        raise InputError("the account has no default entity; give --entity=<name>")
    report = build(found, entity=owner, project=project, group=group)
    ids = json.loads(kept.read_text()) if kept.exists() else {}
    key = f"{owner}/{project}/{report.title}"
    report.id = ids.get(key, "")
    report.save()
    write_text(kept, json.dumps({**ids, key: report.id}, indent=1) + "\n")
    return report.url
