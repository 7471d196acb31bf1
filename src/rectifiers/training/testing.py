"""A trained network through a named protocol, as an entry of a record; its scores in a file where they are kept."""

import time
from collections import Counter

import torch

from rectifiers.evaluation.scores import Scores, scores_path, write
from rectifiers.evaluation.testing import evaluate
from rectifiers.runs.identity import canonical_json
from rectifiers.runs.provenance import code_fingerprint, version
from rectifiers.runs.record_parts import ProtocolResult
from rectifiers.runtime.console import progress_bar
from rectifiers.training.build import Run, import_function

AUTOCAST = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}


def protocol_result(run: Run, name: str) -> ProtocolResult:
    """Test the run's network on the val split by the protocol that `evaluation.<name>` configures."""
    config, compute, classifier = run.config, run.config.compute, run.classifier
    target, images = config.evaluation.protocols[name], run.source.val
    protocol = import_function(f"evaluation.{name}", target)(config.data.crop_px)
    device = torch.device("cuda", run.here.local_rank) if compute.accelerator == "gpu" else torch.device("cpu")
    lower = AUTOCAST.get(compute.precision)  # a result is of the precision that the run was trained in
    started = time.perf_counter()
    with (
        progress_bar(f"testing {name}", len(images.labels)) as seen,
        torch.autocast(device.type, lower, enabled=bool(lower)),
    ):
        tested = evaluate(
            classifier.to(device),
            images,
            protocol,
            classes=len(run.source.classes),
            device=device,
            workers=compute.workers,
            timeout_s=compute.timeout_s,
            on_batch=seen,
        )
    seconds = time.perf_counter() - started
    shapes = Counter(images.shape(i) for i in range(len(images.labels)))
    cost = sum(count * protocol.multiply_adds(classifier.network, *shape) for shape, count in shapes.items())
    path, kept = scores_path(run.folder, name), None
    if config.evaluation.keep_scores:
        labels = torch.tensor(list(images.labels))
        kept = Scores(tested.scores.numpy(), labels.numpy(), run.source.digest, canonical_json(target.as_dict()))
        if run.here.rank == 0:
            write(path, kept)
    elif run.here.rank == 0:
        path.unlink(missing_ok=True)  # of an earlier test, by other settings or older code
    return ProtocolResult(
        **tested.as_dict(),
        settings=target.as_dict(),
        multiply_adds=round(cost / len(images.labels)),
        images_per_second=len(images.labels) / seconds,
        seconds=seconds,
        scores=kept.digest() if kept else None,
        code=code_fingerprint(),
        **version(),
    )
