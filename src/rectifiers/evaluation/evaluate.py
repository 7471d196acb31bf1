"""A whole split through a test protocol, its result, and the scores that are kept of it, so that
ensembles and paired tests need no second pass."""

import hashlib
import math
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from rectifiers.data.loader import ImageLoader
from rectifiers.data.sources import Split
from rectifiers.data.transforms import Reader
from rectifiers.evaluation.metrics import (
    ErrorCounter,
    Errors,
    calibration,
    is_correct,
    mean_log_scores,
)
from rectifiers.evaluation.protocols import TestProtocol
from rectifiers.runtime.distributed import all_reduce, run_on_all_ranks, world
from rectifiers.runtime.errors import InputError, unreadable
from rectifiers.runtime.files import atomic_file
from rectifiers.runtime.schema import JsonObject
from rectifiers.runtime.stopping import iterate_until_stopped

PIXELS_PER_BATCH = 2**19  # of views, whatever their size: 512 of 32 x 32, 10 of 224 x 224
ROWS_AT_A_TIME = 1024  # images of an ensemble, to bound the memory


@dataclass(frozen=True)
class Result:
    """The outcome of a protocol on a split.

    errors, calibration: of the scores averaged over all scales. correct: bool [images], whether
    the top-1 answer is. scores: logarithms of the mean softmax, float64 [images, classes].
    by_scale: the errors at each scale (px).
    """

    errors: Errors
    calibration: dict[str, float | None]
    correct: Tensor
    scores: Tensor
    by_scale: dict[int, Errors] = field(default_factory=dict)

    @classmethod
    def from_scores(cls, scores: Tensor, labels: Tensor) -> "Result":
        """Judge log-probabilities [images, classes] by the images' labels [images]."""
        correct = is_correct(scores, labels)
        has_top5 = scores.shape[1] > 5
        top5_correct = int(is_correct(scores, labels, top_k=5).sum()) if has_top5 else None
        errors = Errors(len(labels), int(correct.sum()), top5_correct)
        return cls(errors, calibration(scores, labels), correct, scores)

    def as_dict(self) -> JsonObject:
        """Return plain types for a record; `correct` in hexadecimal digits, the first image in the
        highest bit."""
        by_scale = {str(px): errors.as_dict() for px, errors in self.by_scale.items()}
        digits = np.packbits(self.correct.numpy()).tobytes().hex()
        return {
            **self.errors.as_dict(),
            "by_scale": by_scale if len(by_scale) > 1 else {},
            **self.calibration,
            "correct_mask": digits[: math.ceil(len(self.correct) / 4)],
        }


class ViewDataset(Dataset[tuple[list[Tensor], int, int]]):
    """(views at each scale, label, index) of every image of a split."""

    def __init__(self, split: Split, protocol: TestProtocol) -> None:
        self.reader, self.protocol = Reader(split), protocol

    def __len__(self) -> int:
        return len(self.reader.split.labels)

    def __getitem__(self, index: int) -> tuple[list[Tensor], int, int]:
        scales = self.protocol.scales_px
        images = self.reader.resized(index, scales)
        views = [self.protocol.views(image, px) for image, px in zip(images, scales, strict=True)]
        return views, self.reader.split.labels[index], index


def image_shapes(split: Split) -> list[tuple[int, int]]:
    """Return the height and width of every image, from the headers; a collective call."""
    return run_on_all_ranks(lambda: [split.shape(index) for index in range(len(split.labels))])


def same_shape_batches(split: Split, protocol: TestProtocol) -> Iterator[list[int]]:
    """Yield every index once, in batches with views of one shape and a bounded number of pixels.

    Where a protocol scores whole images, only those of one shape share a batch. The order is the
    same on all processes, which share the batches."""
    groups: dict[tuple[int, int], list[int]] = {}
    if protocol.view_size is None:
        for index, shape in enumerate(image_shapes(split)):
            groups.setdefault(shape, []).append(index)
    else:
        groups[protocol.view_size] = list(range(len(split.labels)))

    for shape, indices in groups.items():
        size = max(1, PIXELS_PER_BATCH // protocol.pixels(*shape))
        for start in range(0, len(indices), size):
            yield indices[start : start + size]


@torch.inference_mode()
def evaluate(
    classifier: nn.Module,
    split: Split,
    protocol: TestProtocol,
    *,
    classes: int,
    device: torch.device,
    workers: int = 0,
    timeout_s: float = 0,
    on_batch: Callable[[int], None] = lambda images: None,
) -> Result:
    """Test `classifier` (see `protocols.ImageClassifier`) on a whole split; it is put into eval
    mode.

    workers: processes that read images; timeout_s: how long to wait for a batch of theirs, 0 for
    ever. on_batch: called with the number of images after every batch, for a progress bar. Several
    processes share the batches, and each of them returns the result of all. No image is tested
    twice, so the counts are exact on any number of processes; torch's DistributedSampler repeats
    some images to give all processes as many.
    """
    classifier.eval()
    dataset, rank, size = ViewDataset(split, protocol), world().rank, world().size
    batches = list(same_shape_batches(split, protocol))
    share = batches[rank::size]
    longest_share = math.ceil(len(batches) / size)
    loader = ImageLoader(dataset, batch_sampler=share, workers=workers, timeout_s=timeout_s)

    counters = {px: ErrorCounter(classes).to(device) for px in protocol.scales_px}
    all_scores = torch.zeros(len(dataset), classes, dtype=torch.float64)
    # A process may have no share, and torchmetrics warns of a metric that was never updated.
    no_labels = torch.zeros(0, dtype=torch.int64, device=device)
    for counter in counters.values():
        counter.update(all_scores[:0].to(device), no_labels)

    weights = list(protocol.scales_px.values())
    loaded = iterate_until_stopped(loader, longest_share, "while testing")
    for views_by_scale, labels, indices in loaded:
        by_px = []
        for px, views in zip(protocol.scales_px, views_by_scale, strict=True):
            scores = protocol.score(classifier, views.to(device))  # type: ignore[arg-type]
            counters[px].update(scores, labels.to(device))
            by_px.append(scores)
        all_scores[indices] = mean_log_scores(torch.stack(by_px), weights=weights).cpu()
        on_batch(len(labels))

    by_scale = {px: counter.errors() for px, counter in counters.items()}
    for errors in by_scale.values():
        if errors.num_images != len(dataset):
            raise RuntimeError(
                f"counted {errors.num_images} images of a split of {len(dataset)}; the errors "
                "would be wrong"
            )
    # Each image has its scores on one process and zeros on the others.
    all_scores = all_reduce(all_scores.to(device), "sum").cpu()
    result = Result.from_scores(all_scores, torch.tensor(list(split.labels)))
    return replace(result, by_scale=by_scale)


@dataclass(frozen=True)
class Scores:
    """Logarithms of the mean softmax of a whole split, float64 [images, classes], with its labels,
    int64 [images].

    Row i belongs to the i-th image that is tested of the data whose content hash is `data`.
    settings: the protocol's and what the scores are, as canonical JSON."""

    scores: np.ndarray
    labels: np.ndarray
    data: str
    settings: str

    def digest(self) -> str:
        """Return a hash of all fields, 16 hex digits; a record holds it, so that a file of another
        test is noticed."""
        content = hashlib.blake2b(f"{self.data} {self.settings} ".encode(), digest_size=8)
        content.update(self.scores.tobytes())
        content.update(self.labels.tobytes())
        return content.hexdigest()


def save_scores(path: Path, scores: Scores) -> None:
    """Write the file, whole or not at all, in NumPy's npz format: eight bytes per score."""
    with atomic_file(path) as file:
        np.savez(file, **vars(scores))


def load_scores(path: Path) -> Scores:
    """Read a file that `save_scores` made; no pickled code is executed.

    Raises:
        InputError: where the file is missing or damaged, or holds anything else.
    """
    try:
        if not path.is_file():
            raise OSError("it is no regular file")
        with zipfile.ZipFile(path) as parts:
            if any(part.compress_type != zipfile.ZIP_STORED for part in parts.infolist()):
                raise ValueError("a part is compressed, and may unpack to any size")
        with np.load(path, allow_pickle=False) as file:
            scores, labels = file["scores"], file["labels"]
            data, settings = str(file["data"]), str(file["settings"])
        if scores.dtype != np.float64 or scores.ndim != 2 or labels.shape != scores.shape[:1]:
            raise ValueError(
                f"{scores.dtype} scores of shape {scores.shape}, labels of {labels.shape}"
            )
    except Exception as error:  # a damaged file can raise anything
        raise unreadable(path, error, "remove it and test the run again") from error
    return Scores(scores, labels, data, settings)


def mean_result(members: Sequence[Scores]) -> Result:
    """Return the result of the members' mean softmax (section 4.2; how the paper weighs its six
    models is not known). All must be of the same images by the same protocol; an InputError
    says which are not."""
    first = members[0]
    for other in members[1:]:
        tests = [f"data {scores.data} by {scores.settings}" for scores in (first, other)]
        if tests[0] != tests[1] or other.scores.shape != first.scores.shape:
            raise InputError(
                f"the runs were tested on {' and on '.join(tests)}; test them on the same data by "
                "the same settings"
            )

    parts = [torch.from_numpy(member.scores).split(ROWS_AT_A_TIME) for member in members]
    means = [mean_log_scores(torch.stack(rows)) for rows in zip(*parts, strict=True)]
    return Result.from_scores(torch.cat(means), torch.from_numpy(first.labels))
