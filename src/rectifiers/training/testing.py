"""A trained network through a named protocol, as an entry of a record; its scores in a file where they are kept."""

import time
from collections import Counter
from pathlib import Path

import torch

from rectifiers.data.sources import Source
from rectifiers.evaluation.scores import Scores, scores_path, write
from rectifiers.evaluation.testing import evaluate
from rectifiers.runs.config import RunConfig
from rectifiers.runs.identity import canonical_json
from rectifiers.runs.provenance import code_fingerprint, version
from rectifiers.runs.record_parts import ProtocolResult
from rectifiers.runtime.console import progress_bar
from rectifiers.runtime.distributed import World
from rectifiers.training.build import import_function
from rectifiers.training.module import Classifier

AUTOCAST = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}


def protocol_result(
    name: str, config: RunConfig, classifier: Classifier, source: Source, folder: Path, here: World
) -> ProtocolResult:
    """Test `classifier` on the val split by the protocol that `evaluation.<name>` configures."""
    target, compute = config.evaluation.protocols[name], config.compute
    protocol = import_function(f"evaluation.{name}", target)(config.data.crop_px)
    device = torch.device("cuda", here.local_rank) if compute.accelerator == "gpu" else torch.device("cpu")
    lower = AUTOCAST.get(compute.precision)  # a result is of the precision that the run was trained in
    images, started = source.val, time.perf_counter()
    with (
        progress_bar(f"testing {name}", len(images.labels)) as seen,
        torch.autocast(device.type, lower, enabled=bool(lower)),
    ):
        tested = evaluate(
            classifier.to(device),
            images,
            protocol,
            classes=len(source.classes),
            device=device,
            workers=compute.workers,
            timeout_s=compute.timeout_s,
            on_batch=seen,
        )
    seconds = time.perf_counter() - started
    shapes = Counter(images.shape(i) for i in range(len(images.labels)))
    cost = sum(count * protocol.multiply_adds(classifier.network, *shape) for shape, count in shapes.items())
    path, kept = scores_path(folder, name), None
    if config.evaluation.keep_scores:
        labels = torch.tensor(list(images.labels))
        kept = Scores(tested.scores.numpy(), labels.numpy(), source.digest, canonical_json(target.as_dict()))
        if here.rank == 0:
            write(path, kept)
    elif here.rank == 0:
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
