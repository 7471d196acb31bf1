"""Dense testing at several scales against the same windows cut out of the maps, and against a batch
of ten crops.

`python scripts/bench/windows.py [rounds]` prints a table and writes results/bench/<machine>.json.
One image of 500 x 375 at 256, 384 and 480 px, and its mirror image, through the whole 14-layer
network; CPU time of one thread."""

from typing import Any

import torch
from harness import interleave, measure, medians, paper_network, ratios

from rectifiers.evaluation.windows import mean_window_scores

SIZES = ((256, 341), (384, 512), (480, 640))
WINDOW = 18  # of the network at 224 px


@torch.inference_mode()
def main(rounds: int) -> dict[str, Any]:
    network = paper_network("small14").eval()
    images = [torch.randn(1, 3, *size) for size in SIZES]
    images += [image.flip(3) for image in images]
    crops = torch.randn(10, 3, 224, 224)
    places = [
        [side - WINDOW + 1 for side in network.trunk(image).shape[2:]]
        for image in images[: len(SIZES)]
    ]

    def dense() -> torch.Tensor:
        return torch.stack(
            [mean_window_scores(network.head, network.trunk(image), WINDOW) for image in images]
        ).mean(0)

    def one_by_one() -> torch.Tensor:
        means = []
        for image in images:
            windows = (
                network.trunk(image)
                .unfold(2, WINDOW, 1)
                .unfold(3, WINDOW, 1)[0]
                .permute(1, 2, 0, 3, 4)
            )
            scores = [network.head(window[None]).softmax(1) for row in windows for window in row]
            means.append(torch.stack(scores).mean(0))
        return torch.stack(means).mean(0)

    def ten_crops() -> torch.Tensor:
        return network(crops).softmax(1).mean(0)

    difference = float((dense() - one_by_one()).abs().max())
    seconds = interleave(
        {"dense": dense, "windows one by one": one_by_one, "ten crops": ten_crops}, rounds
    )
    return {
        "windows": [down * right for down, right in places],
        "times_dense": {name: ratios(seconds, name, "dense") for name in seconds},
        "seconds": medians(seconds),
        "difference": difference,
    }


if __name__ == "__main__":
    measure(main, __doc__, rounds=3)
