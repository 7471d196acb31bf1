"""What a run ends in: the result of each test protocol, and the record of the training."""

import re
import statistics
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rectifiers.evaluation.evaluate import Result, Scores, evaluate, image_shapes, save_scores
from rectifiers.evaluation.metrics import mean_log_scores
from rectifiers.evaluation.protocols import Combined, Crops, Dense, TestProtocol
from rectifiers.quadrature import describe
from rectifiers.runs.config import PLACES
from rectifiers.runs.folder import scores_path
from rectifiers.runs.identity import canonical_json, science
from rectifiers.runs.record import SCHEMA_VERSION, TrainingRecord, finite
from rectifiers.runs.record_parts import (
    Divergence,
    Network,
    ProtocolResult,
    Slopes,
    SplitSizes,
)
from rectifiers.runtime.console import progress_bar
from rectifiers.training.build import Run
from rectifiers.training.module import Diverged
from rectifiers.training.targets import Choices

# What stands in a record for a path that a command cannot do without.
STAND_INS = {"data.root": "FOLDER", "init.from_weights": "RUN_OR_FILE"}
# a result is of the precision that the run was trained in
AUTOCAST = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}


@dataclass(frozen=True)
class Tested:
    """What a run's test by a protocol found, and how long it took."""

    protocol: TestProtocol
    result: Result
    seconds: float


def protocol_result(run: Run, name: str, known: list[Tested]) -> ProtocolResult:
    """Test the run's network on its test split by the protocol that `evaluation.<name>`
    configures.

    known: earlier dense tests of this network, which are not made again; new ones join them."""
    config, classifier, place = run.config, run.classifier, run.place
    target, images = config.evaluation.protocols[name], run.source.tested
    protocol = run.functions[f"evaluation.{name}"](config.data.crop_px)
    parts = protocol.parts if isinstance(protocol, Combined) else (protocol,)
    number, started = len(images.labels), time.perf_counter()
    tests = [_known_or_tested(run, name, part, known) for part in parts]
    seconds = time.perf_counter() - started

    labels = torch.tensor(list(images.labels))
    tested = tests[0].result
    if len(tests) > 1:
        scores = mean_log_scores(torch.stack([test.result.scores for test in tests]))
        tested = Result.from_scores(scores, labels)

    # crops cost the same in every image
    shapes = [images.shape(0)] if isinstance(protocol, Crops) else image_shapes(images)
    cost = 0  # multiply-adds of these images
    for shape, count in Counter(shapes).items():
        cost += count * protocol.multiply_adds(classifier.network, *shape)

    path, kept = scores_path(run.folder, name), None
    if config.evaluation.keep_scores:
        settings = canonical_json({**target.as_dict(), "scores": "log of the mean softmax"})
        kept = Scores(tested.scores.numpy(), labels.numpy(), run.source.digest, settings)
        if place.rank == 0:
            save_scores(path, kept)
    elif place.rank == 0:
        path.unlink(missing_ok=True)  # of an earlier test, by other settings or older code

    return ProtocolResult(
        **tested.as_dict(),
        split="val" if run.source.test is None else "test",
        settings=target.as_dict(),
        multiply_adds=round(cost / len(shapes)),
        images_per_second=number / sum(test.seconds for test in tests),
        seconds=seconds,
        scores=kept.digest() if kept else None,
        code=run.provenance.code,
        git_sha=run.provenance.git_sha,
        git_dirty=run.provenance.git_dirty,
    )


def _known_or_tested(run: Run, name: str, part: TestProtocol, known: list[Tested]) -> Tested:
    """Return the test of a part of a protocol, made now unless it is known."""
    for test in known:
        if test.protocol == part:
            return test

    test = _tested(run, name, part)
    if isinstance(part, Dense):  # others are functions, which cannot be compared
        known.append(test)
    return test


def _tested(run: Run, name: str, protocol: TestProtocol) -> Tested:
    config, classifier, images = run.config, run.classifier, run.source.tested
    device = torch.device("cpu")
    if config.trainer.accelerator == "gpu":
        device = torch.device("cuda", run.place.local_rank)
    lower = AUTOCAST.get(config.trainer.precision)
    # on whole images cuDNN would search for the fastest algorithms again for each image's size
    torch.backends.cudnn.benchmark = config.trainer.benchmark and isinstance(protocol, Crops)
    started = time.perf_counter()
    with (
        progress_bar(f"testing {name}", -(-len(images.labels) // run.place.size)) as seen,
        torch.autocast(device.type, lower, enabled=bool(lower)),
    ):
        result = evaluate(
            classifier.to(device),
            images,
            protocol,
            classes=len(run.source.classes),
            device=device,
            workers=config.data.num_workers,
            timeout_s=config.timeout_s,
            on_batch=seen,
        )
    return Tested(protocol, result, time.perf_counter() - started)


def training_record(
    run: Run,
    choices: Choices,
    overrides: Sequence[str] | None,
    diverged: Diverged | None,
    results: Mapping[str, ProtocolResult],
) -> TrainingRecord:
    """Return the record of a training that is finished or has diverged, on every rank.

    overrides: what was typed after `python train.py`; None where nothing was.
    """
    config, source, classifier = run.config, run.source, run.classifier
    history = classifier.history
    rates = [row["images_per_second"] for row in history]
    seconds = [*(row["seconds"] for row in history), *(r.seconds for r in results.values())]
    return TrainingRecord(
        schema_version=SCHEMA_VERSION,
        kind="training",
        run=run.folder.name,
        status="diverged" if diverged else "finished",
        diverged=Divergence(step=diverged.step, layer=diverged.layer) if diverged else None,
        choices=dict(choices),
        overrides=None if overrides is None else without_places(overrides),
        science=science(config),
        compute={**config.hardware(), "processes": run.place.size},
        protocols=dict(results),
        network=_network(run),
        class_names=list(source.classes),
        init_report=run.init_report,
        warnings=run.warnings,
        slopes={} if diverged else _spreads(run.network.slopes()),
        activation_parameters={} if diverged else _spreads(run.network.learned_parameters()),
        drop_epochs=classifier.drop_epochs,
        epochs=len(history),
        stopped_by=None if diverged else classifier.stopped_by,
        history=[{key: finite(value) for key, value in row.items()} for row in history],
        images=SplitSizes(
            train=len(source.train.labels),
            val=len(source.val.labels),
            test=None if source.test is None else len(source.test.labels),
        ),
        images_per_second=statistics.harmonic_mean(rates) if rates else None,
        wall_s=sum(seconds),
        codes=classifier.codes,
        provenance=run.provenance,
    )


def _network(run: Run) -> Network:
    network = run.network
    activations = [describe(module) for module, _ in network.activations().values()]
    return Network(
        depth=network.depth,
        input_px=run.config.data.crop_px,
        channels=run.source.channels,
        classes=len(run.source.classes),
        parameters=sum(p.numel() for p in network.parameters()),
        slopes=sum(slope.numel() for slope in network.slopes().values()),
        multiply_adds=network.multiply_adds,
        activation=activations[0] if activations else None,
    )


def _spreads(parameters: Mapping[str, Tensor]) -> dict[str, Slopes]:
    return {
        name: Slopes(
            mean=float(parameter.mean()),
            std=float(parameter.std(correction=0)),
            min=float(parameter.min()),
            max=float(parameter.max()),
            channels=parameter.numel(),
        )
        for name, parameter in parameters.items()
    }


def without_places(overrides: Sequence[str]) -> list[str]:
    """Return what others can type for the same run: nothing that names a folder or an account of
    this machine."""
    kept = []
    for override in overrides:
        key = override.partition("=")[0].lstrip("+~")
        is_of_machine = re.split(r"[./@]", key)[0] in (*PLACES, "hydra", "local")
        if key in STAND_INS:
            kept.append(f"{key}={STAND_INS[key]}")
        elif "dirpath" not in override and not is_of_machine:
            kept.append(override)
    return kept
