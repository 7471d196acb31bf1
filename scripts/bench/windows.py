"""Paired timings, interleaved: dense testing against the same windows cut out, and against the windows' crops.

`python scripts/bench/windows.py [rounds]`. Ratios of medians with the least and the greatest of a round; one thread.
"""

import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from rectifiers.activations import prelu
from rectifiers.evaluation.windows import mean_window_scores
from rectifiers.models.network import Network
from rectifiers.models.spec import expand

ROWS = [
    {"name": "conv1", "conv": 64, "kernel": 7, "stride": 2},
    {"name": "pool1", "max_pool": 3},
    {"name": "conv2", "repeat": 4, "conv": 128, "kernel": 2, "padding": [1, 0]},
    {"name": "pool2", "max_pool": 2},
    {"name": "conv3", "repeat": 6, "conv": 256, "kernel": 2, "padding": [1, 0]},
    {"name": "spp", "pyramid": [6, 3, 2, 1]},
    {"name": "fc1", "linear": 4096},
    {"name": "fc2", "linear": 4096},
    {"name": "fc3", "linear": "classes"},
]
WINDOW, STEP_PX = 18, 12  # of the 14-layer model at 224 px


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


@torch.inference_mode()
def main(rounds: int) -> None:
    torch.set_num_threads(1)
    network = Network(expand(ROWS, width=1, classes=1000), prelu, channels=3, input_px=224).eval()
    for height, width in ((256, 341), (384, 512)):
        image = torch.randn(1, 3, height, width)
        maps = network.trunk(image)
        places = [
            (top, left) for top in range(maps.shape[2] - WINDOW + 1) for left in range(maps.shape[3] - WINDOW + 1)
        ]

        def dense(image: Tensor = image) -> None:
            mean_window_scores(network.head, network.trunk(image), WINDOW)

        def cut(image: Tensor = image, places: list = places) -> None:
            maps = network.trunk(image)
            for top, left in places:
                nn.functional.softmax(network.head(maps[:, :, top : top + WINDOW, left : left + WINDOW]), 1)

        def crops(image: Tensor = image, places: list = places) -> None:
            for top, left in places:
                y, x = min(top * STEP_PX, image.shape[2] - 224), min(left * STEP_PX, image.shape[3] - 224)
                nn.functional.softmax(network(image[:, :, y : y + 224, x : x + 224]), 1)

        times = [[seconds(work) for work in (dense, cut, crops)] for _ in range(rounds + 1)][1:]
        middle = [statistics.median(column) for column in zip(*times, strict=True)]
        for name, i in (("windows cut out", 1), ("their crops", 2)):
            ratios = [row[i] / row[0] for row in times]
            print(
                f"{height} x {width}, {len(places)} windows: {name} / dense = {middle[i] / middle[0]:.1f} "
                f"({min(ratios):.1f} to {max(ratios):.1f}, n = {rounds}; dense {middle[0]:.2f} s)",
                flush=True,
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
