"""What a run leaves in W&B besides numbers: its code, data by reference, checkpoint, record, and
tables of test predictions.

W&B draws where they come from: archives and images -> run -> checkpoint, record and tables. An
artifact that the server has already, by its digest, is not sent again."""

import math
import re
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np

from rectifiers.evaluation.evaluate import Scores, load_scores
from rectifiers.runs.folder import scores_path
from rectifiers.runs.provenance import KINDS, PACKAGE, code_fingerprint
from rectifiers.runs.record import TrainingRecord
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import CHECKOUT, load_yaml

CHECKPOINT, RECORD = "last.ckpt", "record.json"  # in a run's folder
COLUMNS = ("image", "class", "prediction", "its probability", "probability of class", "correct")
OPTION = re.compile(r"\w{1,60}")  # of the group `data`; a record may hold any text


def log_code(run: Any, record: TrainingRecord) -> list[Any]:
    """Send the sources, unless the run was made by others; return the artifacts."""
    if record.codes != [code_fingerprint()]:
        return []
    made = run.log_code(
        str(PACKAGE), name="source-rectifiers", include_fn=lambda path: path.endswith(KINDS)
    )
    return [made] if made else []


def log_model(run: Any, folder: Path, record: TrainingRecord) -> list[Any]:
    """Send the last checkpoint and the record of a run, with its data as their origin; return the
    artifacts."""
    import wandb

    # wandb 0.31: `use_artifact` has no timeout, and fails offline
    made = [run._log_artifact(_data(record), is_user_created=True, use_after_commit=True)]

    facts = {"status": record.status, "epochs": record.epochs, "code": record.provenance.code}
    for kind, name in (("model", CHECKPOINT), ("record", RECORD)):
        path = folder / name
        if path.is_symlink() or not path.is_file():  # a link may lead to anything
            continue
        artifact = wandb.Artifact(f"{kind}-{record.run}", type=kind, metadata=facts)
        # a checkpoint is not copied first: nothing changes it after the run
        artifact.add_file(str(path), policy="immutable" if kind == "model" else "mutable")
        made.append(run.log_artifact(artifact))
    return made


def _data(record: TrainingRecord) -> Any:
    """Return the images of a run as an artifact of references: no image is sent, and no path."""
    import wandb

    origin, option = record.provenance, str(record.choices.get("data"))
    name = option if OPTION.fullmatch(option) else "other"
    facts: dict[str, Any] = {"digest": origin.data, "pinned": origin.data_pinned}
    facts["images"] = record.images.model_dump()
    artifact = wandb.Artifact(f"data-{name}", type="dataset", metadata=facts)
    artifact.add_reference(f"rectifiers-data:{origin.data}", name="images", checksum=False)
    for file, md5 in archives(name).items() if origin.data_pinned else ():
        artifact.add_reference(f"md5:{md5}", name=f"archives/{file}", checksum=False)
    return artifact


def archives(data: str) -> dict[str, str]:
    """Return the md5 of each archive that prepared data are made of, by its name; none outside a
    checkout."""
    path = (CHECKOUT or PACKAGE) / "pipelines" / data / "archives.yaml"
    parts = load_yaml(path.read_text()).values() if path.is_file() else ()
    return {part["file"]: part["md5"] for part in parts if isinstance(part, dict)}


def log_predictions(run: Any, folder: Path, record: TrainingRecord) -> None:
    """Send a table of each protocol's answers, whose scores were kept, into the summary."""
    import wandb

    tables = {}
    for name, result in record.protocols.items():
        if result.scores is None:
            raise InputError(f"{name} has no scores; give evaluation.keep_scores=true")
        path = scores_path(folder, name)
        scores = load_scores(path)
        if scores.digest() != result.scores:
            raise InputError(f"{path} is not of the test in the run's record")
        rows = predictions(scores, result.is_correct(), record.class_names, wandb.Table.MAX_ROWS)
        tables[f"predictions/{name}"] = wandb.Table(columns=list(COLUMNS), data=rows)
    run.summary.update(tables)


def predictions(
    scores: Scores, correct: list[bool], class_names: list[str] | None, most: int
) -> list[list[Any]]:
    """Return a row per image with the columns COLUMNS. Of more than `most` images, every n-th is
    taken and not the first ones, because many sources are sorted by class."""
    number, classes = scores.scores.shape
    names = class_names or [str(k) for k in range(classes)]
    rows = []
    for i in range(0, number, math.ceil(number / most)):
        label, answer = int(scores.labels[i]), int(scores.scores[i].argmax())
        chances = [float(np.exp(scores.scores[i, k])) for k in (answer, label)]
        rows.append([i, names[label], names[answer], *chances, correct[i]])
    return rows


def wait(artifacts: list[Any], seconds: float) -> None:
    """Wait until the server has the artifacts.

    Raises:
        ValueError: with the client's reason, where the server refuses one.
    """
    end = time.monotonic() + seconds
    for artifact in artifacts:
        # wandb 0.31: `Artifact.wait` also fetches the artifact's metadata, without a timeout
        handle = artifact._save_handle
        answer = handle.wait_or(timeout=max(0.0, end - time.monotonic())).response
        if reason := answer.log_artifact_response.error_message:
            raise ValueError(f"{artifact.name}: {reason}")


def within(seconds: float, action: Callable[[], object]) -> None:
    """Run an action that may wait for a server, for at most `seconds`.

    Raises:
        TimeoutError: where it takes longer; it goes on in a thread that ends with the process.
    """
    errors: list[Exception] = []

    def attempt() -> None:
        try:
            action()
        except Exception as error:
            errors.append(error)

    thread = Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise TimeoutError(f"sending its files took more than {seconds:g} s")
    if errors:
        raise errors[0]
