"""What preprocessing makes of images: mean image, principal components, reconstructions, whitened
images."""

import math
from collections.abc import Iterator, Sequence
from functools import partial

from matplotlib.figure import Figure
from rich.console import Group
from torch import Tensor
from torchvision.utils import make_grid

from rectifiers.analysis import output
from rectifiers.analysis.setup import AnalysisSetup
from rectifiers.data.preprocess import COVARIANCE_LIMIT, PixelMoments, eigenbasis, fit, zca
from rectifiers.runs.config import RunConfig
from rectifiers.runtime.console import progress_bar
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.schema import JsonObject

# the course notes', and conf/preprocess/zca.yaml's; PCA's whitening as an image is ZCA's
EPSILONS = {"pca": 1e-5, "zca": 1e-2}
IMAGES, COMPONENTS = 16, 36  # shown


def analyse(config: RunConfig, *, components: Sequence[int]) -> JsonObject:
    """Return the numbers and the pictures, which are tensors below `pictures`: [N, C, H, W], of
    pixels from 0 to 1.

    components: numbers k of components to rebuild images from. explained: the share of variance of
    the first k components. error: the root mean square of what the reconstruction of the images
    lacks, in units of a white pixel."""
    setup = AnalysisSetup(config)
    size = setup.source.channels * math.prod(setup.data.geometry.crop)
    if not max(components) <= size <= COVARIANCE_LIMIT:
        raise InputError(
            f"preprocessing takes images of at least {max(components)} numbers (components=) and "
            f"at most {COVARIANCE_LIMIT:,}, and these have {size:,}; change components, or "
            "data.crop_px and data.resize_px"
        )
    with progress_bar("reading twice", 2 * len(setup.source.train.labels)) as advance:

        def batches() -> Iterator[Tensor]:  # read once for the mean, and once for the covariance
            for batch in setup.data.statistics_batches():
                yield batch
                advance(len(batch))

        moments = PixelMoments(batches)
        eigenvalues, rows = eigenbasis(moments)

    images, _ = setup.images(IMAGES, config.seed)
    originals = images.double() / PixelMoments.WHITE
    coordinates = (originals - moments.mean).flatten(1) @ rows.T
    pictures = {
        "mean": moments.mean[None],
        "originals": originals,
        "components": rows[:COMPONENTS].view(-1, *moments.mean.shape),
    }

    error = {}
    for k in components:
        rebuilt = (coordinates[:, :k] @ rows[:k]).view_as(originals) + moments.mean
        pictures[f"from_{k}"] = rebuilt
        error[str(k)] = float((rebuilt - originals).square().mean().sqrt())

    for name, epsilon in EPSILONS.items():
        pictures[f"{name}_whitened"] = fit(partial(zca, epsilon=epsilon), moments, 1.0)(images)

    shares = eigenvalues.cumsum(0) / eigenvalues.sum()
    return {
        "dimensions": size,
        "training_images": moments.count,
        "eigenvalues": eigenvalues.tolist(),
        "explained": {str(k): float(eigenvalues[:k].sum() / eigenvalues.sum()) for k in components},
        "error": error,
        "largest_over_mean": float(eigenvalues[0] / eigenvalues.mean()),
        "components_for_99_pct": int((shares < 0.99).sum()) + 1,
        "pictures": pictures,
    }


def report(numbers: JsonObject) -> list[Group | str]:
    """Return what k components keep."""
    rows = [
        {"components": int(k), "variance kept, %": 100 * share, "error": numbers["error"][k]}
        for k, share in numbers["explained"].items()
    ]
    title = (
        f"{numbers['dimensions']} numbers per image, {numbers['training_images']:,} training "
        "images; error in white pixels"
    )
    text = (
        f"99 % of the variance is in {numbers['components_for_99_pct']} components; the largest "
        f"variance is {numbers['largest_over_mean']:.1f} times the mean of all"
    )
    return [output.table(title, rows), text]


def plot(numbers: JsonObject) -> Figure:
    """Draw images and what becomes of them, and the first principal components."""
    pictures = numbers["pictures"]
    titles = {"mean": "mean image", "originals": "training images"}
    titles["components"] = f"first {len(pictures['components'])} principal components"
    for k, share in numbers["explained"].items():
        titles[f"from_{k}"] = f"from {k} of {numbers['dimensions']} components ({share:.1%})"
    for name, epsilon in EPSILONS.items():
        titles[f"{name}_whitened"] = f"whitened, ε = {epsilon:g}"

    down = math.ceil(len(titles) / 3)
    figure = output.new_figure(9.6, 3.4 * down, numbers["request"]["data"])
    for axes in figure.subplots(down, 3, squeeze=False).flat:
        axes.set_axis_off()
    for axes, (name, title) in zip(figure.axes, titles.items(), strict=False):
        columns = math.ceil(math.sqrt(len(pictures[name])))
        alone = name == "components" or name.endswith("whitened")  # these have no common range
        style: JsonObject = {"padding": 1, "pad_value": 1, "normalize": True}
        sheet = make_grid(pictures[name], columns, scale_each=alone, **style)
        axes.imshow(sheet.permute(1, 2, 0).numpy(), interpolation="nearest")
        axes.set_title(title, fontsize=9)
    return figure
