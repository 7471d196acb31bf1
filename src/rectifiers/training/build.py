"""From a configuration to the parts of a run: data, preprocessing, network, optimiser."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from rectifiers.data.datamodule import ImageData
from rectifiers.data.preprocess import PixelMoments, Preprocess, fit, load_or_fit, statistics_key
from rectifiers.data.sources import Source, one_at_a_time, three_splits
from rectifiers.data.transforms import Geometry
from rectifiers.initialization.modes import batch_stats_mode
from rectifiers.initialization.report import LayerReport
from rectifiers.initializers import Rule, needs_images
from rectifiers.models.chains import initialize_chain, initialize_empirically
from rectifiers.models.network import ImageNetwork, Network
from rectifiers.runs.config import RunConfig
from rectifiers.runs.provenance import provenance
from rectifiers.runs.record_parts import Provenance
from rectifiers.runs.sections import SOME_CLASSES
from rectifiers.runs.trust import kept_text
from rectifiers.runtime.console import progress_bar, say
from rectifiers.runtime.distributed import (
    SINGLE_PROCESS,
    World,
    broadcast_from_rank_zero,
    run_on_all_ranks,
)
from rectifiers.runtime.errors import InputError, unreadable
from rectifiers.runtime.schema import JsonObject
from rectifiers.runtime.stopping import interruptible
from rectifiers.training import optim
from rectifiers.training.checkpoints import load_plain, load_weights
from rectifiers.training.from_weights import fitting, read_weights, start_from
from rectifiers.training.module import Classifier
from rectifiers.training.networks import empty_network, module_network, row_network
from rectifiers.training.start import start_warnings
from rectifiers.training.targets import Functions, source_file


@dataclass(frozen=True)
class Run:
    """A run that is built: what it is, where it lies, this process' place in it, and its parts."""

    config: RunConfig
    functions: Functions
    folder: Path
    place: World
    source: Source
    data: ImageData
    preprocess: Preprocess
    network: ImageNetwork
    init_report: list[LayerReport]
    classifier: Classifier
    warnings: list[str]
    provenance: Provenance


def build(
    config: RunConfig,
    functions: Functions,
    source: Source,
    folder: Path,
    place: World,
    *,
    is_trained: bool = False,
) -> Run:
    """Return the run of `folder` as it is before its training, on every rank.

    is_trained: whether it is only tested, which needs no batches that the processes divide."""
    data = run_on_all_ranks(lambda: build_data(config, source, place))
    if not is_trained:
        batches = run_on_all_ranks(lambda: data.batches)
        _check_share_of_epoch(config, len(batches))
    preprocess, statistics_hash = build_preprocess(config, functions, data)
    network, init_report = run_on_all_ranks(
        lambda: initial_network(config, functions, data, preprocess)
    )
    sentences: list[str] = []
    if config.init.from_weights_content is not None and not is_trained:
        drawn = init_report
        init_report, sentence = run_on_all_ranks(lambda: start_from(config, network, drawn))
        sentences = [sentence]
        if place.rank == 0:
            say(sentence)

    device = torch.cuda.get_device_name() if config.trainer.accelerator == "gpu" else "cpu"
    origin = provenance(
        source.digest, statistics_hash, device, torch.get_num_threads(), source.pinned
    )
    classifier = Classifier(
        network,
        preprocess,
        partial(optim.configured_optimizer, config, functions),
        optim.build_schedule(config, functions),
        classes=len(source.classes),
        seed=config.seed,
        run=folder.name,
        code=origin.code,
        config=kept_text(config),
        channels=source.channels,
    )
    if config.trainer.precision == "64-true":
        # Lightning would, after weights of a checkpoint were rounded to single precision
        classifier.double()

    return Run(
        config=config,
        functions=functions,
        folder=folder,
        place=place,
        source=source,
        data=data,
        preprocess=preprocess,
        network=network,
        init_report=init_report,
        classifier=classifier,
        warnings=[*sentences, *start_warnings(config, network, init_report)],
        provenance=origin,
    )


def open_source(config: RunConfig, functions: Functions) -> Source:
    """Open the data. A source's function that has a parameter `cache_dir` gets that of the
    configuration."""
    settings = config.data
    function = functions["data"]
    if "cache_dir" in inspect.signature(function).parameters:
        function = partial(function, cache_dir=str(config.cache_dir))
    try:
        with interruptible("while the data was opened"), ExitStack() as stack:
            if settings.download:
                stack.enter_context(one_at_a_time(config.cache_dir))
            source: Source = function()
    except OSError as error:
        if settings.root is None:
            raise
        raise unreadable(f"data.root={settings.root}", error, "give another") from error

    if settings.protocol == "paper":  # which tests on the images that validate
        source = replace(source, test=None)
    if settings.color_sigma and source.channels != 3:
        raise InputError(
            f"data.color_sigma={settings.color_sigma} shifts red, green and blue, and data="
            f"{source.name} has {source.channels} channel; give data.color_sigma=0"
        )
    if source.pinned is False and not settings.allow_unpinned:
        raise InputError(
            f"data.root={settings.root} has a manifest that no committed dvc.lock names; prepare "
            "it by dvc repro and commit the lock, or give data.allow_unpinned=true, which the "
            "record says"
        )
    return source


def inspect_source(source: Source, config: RunConfig) -> Source:
    """Return the source with its hashes, in the splits of `data.protocol`; a collective call: rank
    0 looks at all images for all ranks."""
    settings = config.data

    def look() -> tuple[str, ...] | None:
        with interruptible("while the images were looked at"):
            return source.inspected(config.cache_dir).digests

    # the hashes alone: each rank has opened the images by itself
    source = replace(source, digests=broadcast_from_rank_zero(look))
    if settings.content not in (None, source.digest):
        raise InputError(
            f"data.content={settings.content} is not the hash of the data, which is "
            f"{source.digest}; point data.root to the right files, or give data.content=null to "
            "name the run by what is there"
        )
    if settings.protocol == "paper":
        return source
    return three_splits(source, settings.val_per_class)


def build_data(config: RunConfig, source: Source, place: World = SINGLE_PROCESS) -> ImageData:
    """Return this process' share of the data, in batches."""
    settings = config.data
    geometry = Geometry(**{field.name: getattr(settings, field.name) for field in fields(Geometry)})
    return ImageData(
        source,
        geometry,
        global_batch=settings.batch_size,
        seed=config.seed,
        workers=settings.num_workers,
        timeout_s=config.timeout_s,
        pinned=config.trainer.accelerator == "gpu",
        is_fixed=bool(config.trainer.overfit_batches),
        place=place,
    )


def _check_share_of_epoch(config: RunConfig, batches: int) -> None:
    """Refuse a fraction of an epoch that holds no batch; Lightning would, when the run begins."""
    for key in ("limit_train_batches", "overfit_batches"):
        share = getattr(config.trainer, key)
        if share is not None and share < 1 and int(share * batches) == 0:
            raise InputError(
                f"trainer.{key}={share} is less than one of the {batches} batches of an epoch; "
                f"give a number of batches, such as trainer.{key}=1",
                on_all_ranks=True,
            )


def build_preprocess(
    config: RunConfig, functions: Functions, data: ImageData
) -> tuple[Preprocess, str]:
    """Return the preprocessing, fitted to the training split now or earlier, and the hash of its
    inputs."""
    settings, geometry = config.preprocess, data.geometry
    inputs = {
        "train": data.source.train_digest,
        "resize_px": geometry.resize_px,
        "crop_px": geometry.crop_px,
        "preprocess": settings.as_dict(),
    }
    if not settings.target.startswith("rectifiers."):  # the user's, which may change
        source = source_file(settings.target)
        inputs["code"] = Path(source).read_text() if source else None
    key = statistics_key(inputs)
    images_of_a_rank = len(data.source.train.labels) // data.place.size

    def fit_now() -> Preprocess:
        with progress_bar("fitting the preprocessing", images_of_a_rank) as seen:

            def batches() -> Iterator[Tensor]:
                for images in data.statistics_batches():
                    yield images
                    seen(len(images))

            return fit(functions["preprocess"], PixelMoments(batches), settings.scale)

    cache = config.cache_dir / "statistics"
    return load_or_fit(cache, key, fit_now), key


def initial_network(
    config: RunConfig, functions: Functions, data: ImageData, preprocess: Preprocess
) -> tuple[ImageNetwork, list[LayerReport]]:
    """Return the network as a run of `config` starts with it, and its init report."""
    reads_images = config.init.mode == "empirical" or needs_images(functions["init"])
    batch = preprocess(data.first_batch(config.seed)) if reads_images else None
    return build_network(config, functions, data.source, preprocess.flat_output, batch)


def check_weights(
    config: RunConfig, functions: Functions, source: Source, path: Path | None
) -> None:
    """Refuse weights of another network than that of `config`, for which no image is read: a plain
    `state_dict` at `path` that is tested, and those that `init.from_weights` names."""
    if path is None and config.init.from_weights is None:
        return
    is_rows = config.model.rows is not None
    with torch.random.fork_rng(devices=[]):
        network = empty_network(config, functions, len(source.classes), source.channels)
    # without convolutions, the first layer may read what preprocessing makes of an image
    reads_vectors = is_rows and all(row.kind != "conv" for row in config.model.layers(SOME_CLASSES))
    if path is not None:
        load_plain(network, load_weights(path), names_only=reads_vectors)
    elif not reads_vectors:
        fitting(config, network, read_weights(config)[0])


def build_network(
    config: RunConfig,
    functions: Functions,
    source: Source,
    flat_input: int | None,
    batch: Tensor | None = None,
) -> tuple[ImageNetwork, list[LayerReport]]:
    """Build and initialise the network; return it with its init report.

    batch: of what the network reads, for initialisers that measure responses."""
    rule = functions["init"]
    name = config.init.target.rpartition(".")[2]
    settings: JsonObject = {"seed": config.seed, "name": name, "bias": config.init.bias}
    outline = len(source.classes), source.channels
    network: ImageNetwork
    if config.model.rows is None:
        network = module = module_network(config, functions, *outline, flat_input)
        mode: Literal["forward", "empirical"] = "forward"
        if config.init.mode == "empirical":
            mode = "empirical"
        init_report = module.initialize(rule, **settings, mode=mode, images=batch)
    else:
        network = rows = row_network(config, functions, *outline, flat_input)
        init_report = _fill_rows(config, rows, rule, batch, settings)
    _check_drawn(config, init_report)

    if config.channels_last:
        # what the weights are, convolutions make of maps
        network.to(memory_format=torch.channels_last)
    return network, init_report


def _fill_rows(
    config: RunConfig, network: Network, rule: Rule, batch: Tensor | None, settings: JsonObject
) -> list[LayerReport]:
    """Draw the weights of a network of rows; return the init report."""
    if config.init.mode == "empirical":
        return initialize_empirically(network, network.sites(), rule, batch, **settings)
    return initialize_chain(
        network.sites(),
        rule,
        **settings,
        first_layer_linear=config.init.first_layer_linear,
        fc_std=config.init.fc_std,
        run=None if batch is None else partial(_forward, network, batch),
    )


def _check_drawn(config: RunConfig, init_report: list[LayerReport]) -> None:
    """Refuse a rule that does not return the standard deviation that it asks for."""
    for entry in init_report:
        asked = entry.std_asked
        if not isinstance(asked, int | float) or not 0 <= asked < math.inf:
            raise InputError(
                f"init._target_={config.init.target} returns {asked} for {entry.layer}; it must "
                "return the std that it asks for, a finite number that is not negative"
            )


def _forward(network: Network, x: Tensor) -> None:
    """Run a network as in training, without dropout."""
    with batch_stats_mode(network), torch.no_grad():
        network(x)
