"""Finished runs as one: their kept scores averaged, and a record of it like that of a run."""

import time
from collections.abc import Sequence
from pathlib import Path

import torch

from rectifiers.evaluation.evaluate import load_scores, mean_result
from rectifiers.runs import record as records
from rectifiers.runs.config import RunConfig
from rectifiers.runs.folder import Outcome, run_lock, scores_path
from rectifiers.runs.identity import run_id
from rectifiers.runs.links import link_run
from rectifiers.runs.provenance import provenance
from rectifiers.runs.record import SCHEMA_VERSION, EnsembleRecord, Member, TrainingRecord
from rectifiers.runs.record_parts import EnsembleResult, Provenance
from rectifiers.runtime.distributed import broadcast_from_rank_zero
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.stopping import deferring_signals, stop_if_requested
from rectifiers.training.targets import Choices
from rectifiers.training.train import train


def ensemble(
    members: Sequence[tuple[RunConfig, Choices, Sequence[str] | None]],
    runs_dir: Path,
    experiment: str | None = None,
) -> Outcome[EnsembleRecord]:
    """Average what the runs of `members`, (configuration, choices, overrides) each, score by the
    first's protocols.

    What a run lacks, training or kept scores, is made first, by all processes where there are
    several; rank 0 averages. The record lies in `runs_dir` under a name made of theirs.
    experiment: the experiment that it answers, where it is one of the paper's.
    """
    names = sorted(members[0][0].evaluation.protocols)
    outcomes = []
    with deferring_signals():
        for config, choices, overrides in members:
            keeping = config.replaced({"evaluation.keep_scores": True})
            outcomes.append(train(keeping, choices, overrides))
            run = outcomes[-1].record
            if run.status != "finished":
                reason = f"run={run.run} diverged; leave it out of the ensemble"
                raise InputError(reason, on_all_ranks=True)
        stop_if_requested("between its runs and their average")
        return broadcast_from_rank_zero(lambda: _averaged(outcomes, names, runs_dir, experiment))


def _averaged(
    outcomes: list[Outcome[TrainingRecord]],
    names: list[str],
    runs_dir: Path,
    experiment: str | None,
) -> Outcome[EnsembleRecord]:
    # sums of scores depend on the order, in the last bit
    outcomes.sort(key=lambda outcome: outcome.record.run)
    runs = [outcome.record for outcome in outcomes]
    ids = sorted({run.run for run in runs})
    if len(ids) < max(2, len(runs)):
        raise InputError(
            f"an ensemble of {', '.join(ids)} needs different runs, two or more; give "
            "run=[<id>,<id>,...]"
        )
    if len({run.images.tested for run in runs}) > 1:
        raise InputError(
            f"the runs {', '.join(ids)} are of both data.protocol=held_out and paper; give "
            "runs of one"
        )
    science = {"members": ids}
    path = runs_dir / run_id(science) / "record.json"
    with run_lock(path.parent, patience_s=60):
        record = _record(outcomes, names, path, experiment)
        records.write(path, record)
        link_run(path.parent, f"ensemble-{path.parent.name}")
    return Outcome(record, path, fresh=True)


def _record(
    outcomes: list[Outcome[TrainingRecord]], names: list[str], path: Path, experiment: str | None
) -> EnsembleRecord:
    """Return the record of an ensemble with the results that it has at `path` already."""
    runs = [outcome.record for outcome in outcomes]
    data = runs[0].provenance
    origin = provenance(data.data, None, "cpu", torch.get_num_threads(), data.data_pinned)
    dirty = [origin.git_dirty, *(run.provenance.git_dirty for run in runs)]
    is_dirty: bool | None = any(dirty)
    if not is_dirty and None in dirty:  # outside of a checkout nobody can say
        is_dirty = None

    earlier = records.load(path) if path.is_file() else None
    results = dict(earlier.protocols) if isinstance(earlier, EnsembleRecord) else {}
    for name, result in list(results.items()):
        if result.member_scores != _digests(name, outcomes):  # a member was tested again
            del results[name]
    for name in names:
        results[name] = _result(name, outcomes, origin)
    choices = {"experiment": experiment}
    for key in ("data", "debug"):
        choices[key] = next(filter(None, (run.choices.get(key) for run in runs)), None)
    return EnsembleRecord(
        schema_version=SCHEMA_VERSION,
        kind="ensemble",
        run=path.parent.name,
        status="finished",
        choices=choices,
        science={"members": sorted(run.run for run in runs)},
        members=[
            Member(run=run.run, choices=run.choices, science=run.science, images=run.images)
            for run in runs
        ],
        protocols=results,
        codes=sorted({code for run in runs for code in run.codes}),
        provenance=origin.model_copy(update={"git_dirty": is_dirty}),
    )


def _digests(name: str, outcomes: Sequence[Outcome[TrainingRecord]]) -> list[str | None]:
    results = [outcome.record.protocols.get(name) for outcome in outcomes]
    return [result.scores if result else None for result in results]


def _result(
    name: str, outcomes: Sequence[Outcome[TrainingRecord]], origin: Provenance
) -> EnsembleResult:
    started = time.perf_counter()
    members = []
    for outcome, digest in zip(outcomes, _digests(name, outcomes), strict=True):
        path = scores_path(outcome.path.parent, name)
        members.append(load_scores(path))
        if members[-1].digest() != digest:
            raise InputError(
                f"{path} is not of the test in the run's record; remove it and try again"
            )
    mean = mean_result(members)
    results = [outcome.record.protocols[name] for outcome in outcomes]
    return EnsembleResult(
        **mean.as_dict(),
        split=results[0].split,
        settings=results[0].settings,
        multiply_adds=sum(result.multiply_adds for result in results),
        images_per_second=1 / sum(1 / result.images_per_second for result in results),
        seconds=time.perf_counter() - started,
        member_scores=_digests(name, outcomes),
        scores=None,
        code=origin.code,
        git_sha=origin.git_sha,
        git_dirty=origin.git_dirty,
    )
