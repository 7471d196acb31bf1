"""What is published of all entries: the leaderboard, and the list of their runs."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rectifiers.benchmark.definition import SIZES, Size, benchmark
from rectifiers.benchmark.entries import EntryResults, RunResult, order, rival_rate
from rectifiers.benchmark.ranking import (
    REFERENCE,
    Ranking,
    admission_table,
    admissions,
    depth_reached,
    difference,
    early_and_late,
    ranked_tasks,
    score_text,
)
from rectifiers.results.documents import literal, markdown, render


def leaderboard(entries: Mapping[str, EntryResults], digest: str) -> str:
    """Return LEADERBOARD.md: for each size the places, the controls, and what is not ranked.
    digest: the sha256 of the CSV of all runs."""
    sections = []
    for size in SIZES:
        tasks = benchmark().of_size(size)
        present = {name: e for name, e in entries.items() if tasks.keys() & set(e.tasks())}
        if present:
            sections.append(_section(present, size))
    return render("leaderboard", spec=benchmark(), digest=digest, sections=sections)


def _section(entries: Mapping[str, EntryResults], size: Size) -> dict[str, Any]:
    """Return what the page says of a size: tables as Markdown, those of the tasks by name; what
    there is nothing to say of is empty."""
    tasks = benchmark().of_size(size)
    present = [name for name in tasks if any(name in e.tasks() for e in entries.values())]
    refused = [check for check in admissions(entries, tasks) if not check.is_admitted]
    ranked = ranked_tasks(entries, size)
    places, controls = _places(entries, ranked, size) if ranked else ("", "")
    return {
        "size": size,
        "early_and_late": early_and_late(entries) if size == "late" else None,
        "refused": admission_table(refused) if refused else "",
        "places": places,
        "controls": controls,
        "tasks": {task: _task_table(entries, task) for task in present},
        "incomplete": _gaps(entries, present),
    }


def _gaps(entries: Mapping[str, EntryResults], tasks: Sequence[str]) -> str:
    """Return the table of the entries that are incomplete on some of the tasks."""
    rows = []
    for name, results in entries.items():
        missing = {task: results.gap(task) for task in tasks}
        reasons = [f"{task}: {literal(gap)}" for task, gap in missing.items() if gap]
        if reasons:
            rows.append([name, "; ".join(reasons)])
    return markdown(("entry", "missing"), rows) if rows else ""


def _places(
    entries: Mapping[str, EntryResults], tasks: Sequence[str], size: Size
) -> tuple[str, str]:
    """Return the table of places, and that of the controls; empty without one."""
    ranks, early = Ranking.of(entries, tasks), _early_ranking(entries, tasks)
    asks_depth = bool(benchmark().of_size(size, is_error=False))
    head = ["entry", "place", "error / ReLU's (95 % CI)", *(["early"] if early else [])]
    head += [*(f"{task}, %" for task in tasks), "diverged"]
    head += [*(["trains to depth"] if asks_depth else []), "step / ReLU's"]

    def row(name: str, place: str) -> list[str]:
        results = entries[name]
        cells = [name, place, ranks.ratio_text(name)]
        if early:
            cells.append(early.ratio_text(name) if name in early.names else "-")
        cells += [score_text(results, task) for task in tasks]
        cells.append(_diverged([run for task in tasks for run in results.judged(task)]))
        if asks_depth:
            depth = depth_reached(results, size)
            cells.append("-" if depth is None else str(depth))
        return [*cells, "-" if results.cost is None else f"{results.cost:.2f}"]

    places = markdown(head, [row(name, ranks.place_text(name)) for name in ranks.placed])
    controls = [row(name, "-") for name in ranks.names if name in benchmark().controls]
    return places, markdown(head, controls) if controls else ""


def _early_ranking(entries: Mapping[str, EntryResults], tasks: Sequence[str]) -> Ranking | None:
    """Return the ranking on the short training of the same tasks; None where there is none."""
    early = [task.early for task in map(benchmark().tasks.__getitem__, tasks) if task.early]
    if not early or any(entries[REFERENCE].gap(task) for task in early):
        return None
    return Ranking.of(entries, early)


def _task_table(entries: Mapping[str, EntryResults], task: str) -> str:
    """Return the entries that are complete on a task, the best first, paired by seed with ReLU."""
    complete = [entry for entry in entries.values() if entry.gap(task) is None]
    spec, relu = benchmark().tasks[task], entries.get(REFERENCE)
    is_error = spec.depth is None
    scored = [(np.mean([_loss(run, is_error) for run in e.judged(task)]), e) for e in complete]

    rows = []
    for _, entry in sorted(scored, key=lambda item: (item[0], item[1].entry)):
        rival = rival_rate(task, entry.runs)
        rate = f"{entry.rate(task):g}" + (f" or {rival:g}" if rival else "")
        cells = [entry.entry, score_text(entry, task), rate, _diverged(entry.judged(task))]
        if is_error:
            if relu is None or relu not in complete or entry is relu:
                cells.append("-")
            else:
                cells.append(difference(entry, relu, task).signed())
        rows.append(cells)

    head = ["entry", "test error, %" if is_error else "seeds that train", "learning rate"]
    head += ["diverged", *(["minus ReLU, points (95 % CI)"] if is_error else [])]
    return markdown(head, rows)


def _loss(run: RunResult, is_error: bool) -> float:
    return run.error_pct if is_error else float(not run.trained)


def _diverged(runs: Sequence[RunResult]) -> str:
    return f"{sum(run.diverged for run in runs)} of {len(runs)}"


def runs_csv(entries: Mapping[str, EntryResults]) -> str:
    """Return all runs as CSV, by entry and then by `order`, whatever order the files have. val and
    test: errors in percent, empty where the run diverged (1); commit: of its code, empty where it
    was not kept."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(("run", "entry", "task", "seed", "rate", "val", "test", "diverged", "commit"))
    for name, results in sorted(entries.items()):
        for run in sorted(results.runs, key=order):
            place = (name, run.task, run.seed, f"{run.rate:g}")
            errors = (run.val_error_pct, run.test_error_pct, int(run.diverged))
            writer.writerow((run.run, *place, *errors, run.commit))
    return file.getvalue()
