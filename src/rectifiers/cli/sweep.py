"""A sweep: a list of overrides, a job for each. The states of the jobs are read from their runs'
own files."""

import functools
import itertools
import json
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import yaml
from annotated_types import Ge
from omegaconf import DictConfig, OmegaConf
from pydantic import Field
from rich.console import Console
from rich.table import Table

from rectifiers.cli.composition import Choices, compose_with_choices, parse_overrides, resolve
from rectifiers.results.statistics import mean_of
from rectifiers.runs.config import RunConfig
from rectifiers.runs.folder import find, is_locked, run_folder
from rectifiers.runs.identity import canonical_json, run_id, science
from rectifiers.runs.provenance import code_fingerprint
from rectifiers.runs.record import TrainingRecord
from rectifiers.runs.trust import check_overrides, check_targets
from rectifiers.runtime.console import printable
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import (
    check_writable,
    read_bytes,
    read_yaml,
    refuse_link,
    write_text,
)
from rectifiers.runtime.schema import Section

FORWARD_AND_BACKWARD = 3
LARGEST_LOG = 2**26  # bytes
# The overrides that the jobs of a sweep differ by most often; numbers alone, for all else is
# checked as it is composed.
OF_A_JOB = re.compile(r"(seed|optim\.lr)=[0-9.e+-]+")
SECONDS_PER_QUESTION = 5  # to a scheduler


class State(StrEnum):
    """What is known of a job's run."""

    DONE = "done"
    DIVERGED = "diverged"
    RUNNING = "running"
    STARTING = "starting"  # its process is there, and does not hold the run yet
    FAILED = "failed"
    QUEUED = "queued"  # at a scheduler
    PRINTED = "printed"  # its command was, for a scheduler that is not known here
    MISSING = "missing"


TO_START = (State.MISSING, State.FAILED, State.PRINTED)


@dataclass(frozen=True)
class Job:
    """One run of a sweep, named as the run.

    cost: multiply-adds of the whole training, forward and backward. differs: the overrides that not
    all jobs have."""

    sweep: Path
    name: str
    overrides: tuple[str, ...]
    cost: int
    differs: str

    def __str__(self) -> str:
        return f"{self.name} {self.differs}"

    def file(self, kind: str = "") -> Path:
        """Return where its log (`.log`) and the last note of it (`.note`) lie, and what is locked
        while it starts."""
        return self.sweep / "logs" / f"{self.name}{kind}"

    def prepared(self) -> tuple[RunConfig, Choices]:
        """Return (configuration, choices), with `rerun` unless that was done."""
        config, choices = compose_job(self.overrides)
        record = _folder(config) / "record.json"
        if record.is_file() and record.stat().st_mtime > _path(self.sweep).stat().st_mtime:
            config = config.replaced({"rerun": False})
        return config, choices

    def record(self) -> TrainingRecord | None:
        """Return the record of its run, with all that was asked for in it, or None."""
        try:
            found = find(self.prepared()[0])
        except InputError:
            return None
        return found.record if found is not None and found.is_complete else None

    def state(self) -> State:
        """Read what has become of it: from its run's folder and lock, its last process, the
        scheduler that has it."""
        try:
            config, _ = self.prepared()
            found = find(config)
        except InputError:  # its record cannot be read, say; starting it says so
            return State.FAILED
        if found is not None and found.is_complete:
            return State.DIVERGED if found.record.status == "diverged" else State.DONE
        if is_locked(_folder(config)):
            return State.RUNNING
        if is_locked(self.file()):
            return State.STARTING
        kind, _, number = _read(self.file(".note")).partition(" ")
        if kind in ("slurm", "local"):
            is_alive = _is_alive(kind, number)
            return State.MISSING if is_alive is None else State.QUEUED if is_alive else State.FAILED
        return {"": State.MISSING, "printed": State.PRINTED}.get(kind, State.FAILED)

    def note(self, text: str) -> None:
        """Keep who has it (`slurm <job>`, `local <process>` or `printed`), or how it failed
        (`error: ...`)."""
        write_text(self.file(".note"), " ".join(text.split()))

    def last_try(self) -> int | None:
        """Return when it was noted last who has it or how it failed, in nanoseconds; None where it
        never was."""
        path = self.file(".note")
        return path.stat().st_mtime_ns if path.exists() else None

    def forget_error(self) -> None:
        """Forget how it failed, but not who has it."""
        if _read(self.file(".note")).startswith("error: "):
            self.note("")

    def last_words(self) -> str:
        """Return what keeps it from starting, how it failed, or else the last line of its log."""
        try:
            self.prepared()
        except InputError as error:
            return str(error)
        note, log = _read(self.file(".note")), _read(self.file(".log")).splitlines()
        return printable(
            note if note.startswith("error: ") else next(filter(None, reversed(log)), "")
        )


@functools.cache
def compose_job(overrides: tuple[str, ...]) -> tuple[RunConfig, Choices]:
    """Return (configuration, choices) that `train.py <overrides>` would have.

    Composing takes 0.1 s, and a sweep has many seeds and rates: what they share is composed once,
    and not even copied."""
    shared, choices = _composed(_without_own(overrides))
    given = {
        each.key_or_group: each.value()
        for each in parse_overrides(list(filter(OF_A_JOB.fullmatch, overrides)))
    }
    as_composed = {key: OmegaConf.select(shared, key) for key in given}
    try:
        _update(shared, given)
        return resolve(shared), choices
    finally:
        _update(shared, as_composed)


_composed = functools.cache(compose_with_choices)


def _without_own(overrides: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(each for each in overrides if not OF_A_JOB.fullmatch(each))


def _update(config: DictConfig, values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        OmegaConf.update(config, key, value)


def plan(folder: Path, lines: Iterable[Sequence[str]]) -> int:
    """Make the sweep of command lines as for `train.py --multirun`, or add them to one; return the
    number of jobs.

    Kept are the overrides of each job as typed, with absolute paths, and with the hash of the data
    where that is in the run's name. The data are opened for it, and for the cost.

    Raises:
        InputError: where a line cannot be used, or two of its jobs are the same run.
    """
    from rectifiers.training.build import inspect_source, open_source
    from rectifiers.training.checks import check_functions
    from rectifiers.training.size import network_size

    check_writable("the sweep's folder", folder)
    sources: dict[str, Any] = {}
    planned: dict[str, Job] = {}
    for typed in itertools.chain.from_iterable(map(_expand, lines)):
        config, _ = compose_job(_words(typed))
        check_functions(config)
        data = config.data
        key = canonical_json(data.as_dict())
        source = sources[key] = sources.get(key) or inspect_source(open_source(config), config)
        paths = {
            "runs_dir": config.runs_dir,
            "cache_dir": config.cache_dir,
            "data.root": data.options.get("root"),
        }
        fixed = {
            key: f"'{Path(path).absolute()}'" for key, path in paths.items() if path is not None
        }
        if "content" in data.model_fields_set:
            fixed["data.content"] = source.digest
        overrides = _words(typed | fixed)
        check_overrides(overrides, _path(folder))
        name = run_id(science(compose_job(overrides)[0]))
        if name in planned:
            raise InputError(
                f"{' '.join(_words(typed))} is the same run as another one here; leave one out"
            )
        size = network_size(
            config, classes=len(source.classes), channels=source.channels, input_px=data.crop_px
        )
        cost = (
            FORWARD_AND_BACKWARD
            * size["multiply_adds"]
            * len(source.train.labels)
            * config.trainer.max_epochs
        )
        planned[name] = Job(folder, name, overrides, cost, differs="")
    if not planned:
        raise InputError(
            "these overrides make no run, for one of them is a choice among nothing; give it a "
            "value"
        )
    if _path(folder).exists():
        planned = {job.name: job for job in load(folder)} | planned
    ordered = sorted(
        planned.values(), key=lambda job: (job.cost, compose_job(job.overrides)[0].seed, job.name)
    )
    jobs = {job.name: {"cost": job.cost, "overrides": list(job.overrides)} for job in ordered}
    kept = {"code": code_fingerprint(), "jobs": jobs}
    write_text(
        _path(folder), yaml.safe_dump(kept, sort_keys=False, default_flow_style=None, width=120)
    )
    return len(planned)


class _KeptJob(Section):
    cost: Annotated[int, Ge(0)]
    overrides: tuple[str, ...]


class _Kept(Section):
    """What sweep.yaml holds. A job's name is that of a run, for it is part of paths."""

    code: str
    jobs: dict[Annotated[str, Field(pattern=r"^[0-9a-f]{12}$")], _KeptJob]


def load(folder: Path) -> list[Job]:
    """Read the jobs of a sweep, the cheapest first; of those that cost the same, seed by seed, then
    by name.

    Raises:
        InputError: where the folder has no sweep, or one whose overrides reach beyond the
        configuration.
    """
    refuse_link(folder / "logs")
    try:
        kept = _Kept.model_validate_json(json.dumps(read_yaml(_path(folder)), default=str))
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).splitlines()[1:3] or [str(error)])
        raise InputError(
            f"{folder} holds no sweep; make one with scripts/sweep.py plan "
            f"{quote(str(folder))} <overrides> ({reason})"
        ) from error
    planned = kept.code
    jobs = [(name, job.overrides, job.cost) for name, job in kept.jobs.items()]
    for _, overrides, _ in jobs:
        check_overrides(overrides, _path(folder))
    if planned != code_fingerprint():
        now = code_fingerprint()
        print(
            f"the source has changed since this was planned ({printable(planned)}; now {now})",
            file=sys.stderr,
        )
    common = (
        set.intersection(*(set(overrides) for _, overrides, _ in jobs)) if len(jobs) > 1 else set()
    )
    return [
        Job(
            folder.absolute(),
            name,
            overrides,
            cost,
            " ".join(each for each in overrides if each not in common),
        )
        for name, overrides, cost in jobs
    ]


def load_to_run(folder: Path, trust: Collection[str]) -> list[Job]:
    """Read the jobs of a sweep that are to be run, with functions of this package or of the modules
    of `trust`.

    Raises:
        InputError: where they name others.
    """
    jobs, place = load(folder), _path(folder)
    for overrides in dict.fromkeys(_without_own(job.overrides) for job in jobs):
        config = OmegaConf.to_container(_composed(overrides)[0])
        check_targets(config, place, trust)
    return jobs


def print_status(jobs: Sequence[Job], as_json: bool) -> None:
    found = [(job, job.state()) for job in jobs]
    if as_json:
        rows = [
            {"run": j.name, "state": state, "cost": j.cost, "overrides": j.overrides}
            for j, state in found
        ]
        print(json.dumps(rows))
        return
    table = Table("run", "state", "multiply-adds", "overrides that differ")
    for job, state in found:
        table.add_row(job.name, state, f"{job.cost:.2g}", job.differs)
    counts = Counter(state for _, state in found)
    Console().print(table, ", ".join(f"{n} {state}" for state, n in sorted(counts.items())))


def print_means(jobs: Sequence[Job], as_json: bool) -> None:
    """Print the mean error over seeds of every setting and protocol, from the runs that are
    done."""
    errors: dict[tuple[str, str], list[float]] = {}
    planned: Counter[str] = Counter()
    for job in jobs:
        setting = (
            " ".join(each for each in job.differs.split() if not each.startswith("seed=")) or "all"
        )
        planned[setting] += 1
        record = job.record()
        for name, result in (record.protocols if record else {}).items():
            errors.setdefault((setting, name), []).append(result.top1_error_pct)
    means = [(setting, name, mean_of(each)) for (setting, name), each in sorted(errors.items())]
    if as_json:
        print(
            json.dumps(
                [
                    {"setting": s, "protocol": n, "planned": planned[s], **vars(m)}
                    for s, n, m in means
                ]
            )
        )
        return
    table = Table("setting", "protocol", "top-1 error %", "95 % interval", "n of planned")
    for setting, name, mean in means:
        interval = "-" if mean.low is None else f"{mean.low:.2f} to {mean.high:.2f}"
        table.add_row(
            setting, name, f"{mean.mean:.2f}", interval, f"{mean.n} of {planned[setting]}"
        )
    Console().print(table)


def _path(folder: Path) -> Path:
    return folder / "sweep.yaml"


def _read(path: Path) -> str:
    try:
        return read_bytes(path, LARGEST_LOG).decode(errors="replace")
    except OSError:
        return ""


def _folder(config: RunConfig) -> Path:
    folder = run_folder(config)
    assert folder is not None  # the hash of the data is in the overrides
    return folder


def _words(overrides: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(f"{key}={value}" for key, value in overrides.items())


def _expand(line: Sequence[str]) -> list[dict[str, str]]:
    """Return the overrides of each combination of the choices that commas separate."""
    choices = {}
    for each in parse_overrides(line):
        key, is_sweep = each.get_key_element(), each.is_sweep_override()
        if is_sweep and not each.is_discrete_sweep():
            raise InputError(f"{each.input_line} is no list of choices; give {key}=<one>,<other>")
        choices[key] = (
            list(each.sweep_string_iterator()) if is_sweep else [each.get_value_element_as_str()]
        )
    return [
        dict(zip(choices, values, strict=True)) for values in itertools.product(*choices.values())
    ]


def _is_alive(cluster: str, number: str) -> bool | None:
    """Return whether a scheduler still has a job; None where that cannot be known."""
    if cluster == "local":
        return Path(f"/proc/{number}").exists()
    queue = _slurm_queue(int(time.monotonic() // SECONDS_PER_QUESTION))
    return None if queue is None else number in queue


@functools.lru_cache(maxsize=1)
def _slurm_queue(moment: int) -> frozenset[str] | None:
    """The jobs that SLURM has, each of an array, asked once per moment; None where it does not
    answer."""
    command = ["squeue", "--noheader", "--array", "--format=%i"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return frozenset(answer.stdout.split()) if answer.returncode == 0 else None
