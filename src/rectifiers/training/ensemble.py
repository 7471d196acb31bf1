"""Finished runs as one: their kept scores averaged, and a record of it like that of a run."""

import time
from collections.abc import Sequence
from pathlib import Path

import torch

from rectifiers.evaluation.result import mean_result
from rectifiers.evaluation.scores import load, scores_path
from rectifiers.runs import record as records
from rectifiers.runs.config import RunConfig
from rectifiers.runs.identity import run_id
from rectifiers.runs.provenance import provenance
from rectifiers.runs.record import SCHEMA_VERSION, EnsembleRecord, Member, TrainingRecord
from rectifiers.runs.record_parts import EnsembleResult, Provenance
from rectifiers.runtime.distributed import broadcast_from_rank_zero
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import refuse_link
from rectifiers.runtime.signals import deferring_signals, stop_if_requested
from rectifiers.training.train import Choices, Outcome, train


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

    Raises:
        InputError: where a run diverged, or the runs differ in their data or their protocols'
            settings.
    """
    names = sorted(members[0][0].evaluation.protocols)
    outcomes = []
    with deferring_signals():
        for config, choices, overrides in members:
            outcomes.append(
                train(config.replaced({"evaluation.keep_scores": True}), choices, overrides)
            )
            run = outcomes[-1].record
            if run.status != "finished":
                raise InputError(
                    f"run={run.run} diverged, and cannot be in an ensemble; leave it out"
                )
        stop_if_requested("between its runs and their average")
        return broadcast_from_rank_zero(lambda: _averaged(outcomes, names, runs_dir, experiment))


def _averaged(
    outcomes: list[Outcome[TrainingRecord]],
    names: list[str],
    runs_dir: Path,
    experiment: str | None,
) -> Outcome[EnsembleRecord]:
    outcomes.sort(
        key=lambda outcome: outcome.record.run
    )  # sums of scores depend on the order, in the last bit
    ids = sorted({outcome.record.run for outcome in outcomes})
    if len(ids) < max(2, len(outcomes)):
        raise InputError(
            f"an ensemble of {', '.join(ids)} needs different runs, two or more; give "
            "run=[<id>,<id>,...]"
        )
    ours = {"members": ids}
    path = runs_dir / run_id(ours) / "record.json"
    refuse_link(path.parent)
    parts = [outcome.record for outcome in outcomes]
    choices = {key: [part.choices.get(key) for part in parts] for key in ("data", "debug")}
    if len({part.images.tested for part in parts}) > 1:
        raise InputError(
            f"the runs {', '.join(ids)} are of both data.protocol=held_out and paper; give "
            "runs of one"
        )
    data = parts[0].provenance
    own = provenance(data.data, None, "cpu", torch.get_num_threads(), data.data_pinned)
    clean = own.git_dirty is False and all(part.provenance.git_dirty is False for part in parts)
    kept = records.load(path) if path.is_file() else None
    earlier = kept.protocols if isinstance(kept, EnsembleRecord) else {}
    still_true = {
        name: found
        for name, found in earlier.items()
        if found.member_scores == _digests(name, outcomes)
    }
    record = EnsembleRecord(
        schema_version=SCHEMA_VERSION,
        kind="ensemble",
        run=path.parent.name,
        status="finished",
        choices={"experiment": experiment}
        | {k: next(filter(None, found), None) for k, found in choices.items()},
        science=ours,
        members=[
            Member(run=part.run, choices=part.choices, science=part.science, images=part.images)
            for part in parts
        ],
        protocols=still_true | {name: _result(name, outcomes, own) for name in names},
        codes=sorted({code for part in parts for code in part.codes}),
        provenance=own.model_copy(update={"git_dirty": not clean}),
    )
    records.write(path, record)
    return Outcome(record, path, fresh=True)


def _digests(name: str, outcomes: Sequence[Outcome[TrainingRecord]]) -> list[str | None]:
    results = [outcome.record.protocols.get(name) for outcome in outcomes]
    return [result.scores if result else None for result in results]


def _result(
    name: str, outcomes: Sequence[Outcome[TrainingRecord]], own: Provenance
) -> EnsembleResult:
    started = time.perf_counter()
    kept = []
    for outcome, digest in zip(outcomes, _digests(name, outcomes), strict=True):
        path = scores_path(outcome.path.parent, name)
        kept.append(load(path))
        if kept[-1].digest() != digest:
            raise InputError(
                f"{path} is not of the test in the run's record; remove it and try again"
            )
    found = mean_result(kept)
    theirs = [outcome.record.protocols[name] for outcome in outcomes]
    seconds = time.perf_counter() - started
    return EnsembleResult(
        **found.as_dict(),
        split=theirs[0].split,
        settings=theirs[0].settings,
        multiply_adds=sum(result.multiply_adds for result in theirs),
        images_per_second=1 / sum(1 / result.images_per_second for result in theirs),
        seconds=seconds,
        member_scores=_digests(name, outcomes),
        scores=None,
        code=own.code,
        git_sha=own.git_sha,
        git_dirty=own.git_dirty,
    )
