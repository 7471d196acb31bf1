"""Dense testing at several scales against the same windows cut out of the maps, and against a batch of ten crops.

`python scripts/bench/windows.py [rounds]` prints a table and writes results/bench/<machine>.json. One image of
500 x 375 at 256, 384 and 480 px, and its mirror image, through the whole 14-layer network; CPU time of one thread.
"""

import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from pairs import interleave, keep, ratios, show, spread

from rectifiers.cli.composition import composed
from rectifiers.evaluation.windows import mean_window_scores
from rectifiers.nn.activations import prelu
from rectifiers.nn.networks.network import Network
from rectifiers.nn.networks.rows import expand

SIZES = ((256, 341), (384, 512), (480, 640))
WINDOW = 18  # of the network at 224 px


@torch.inference_mode()
def main(rounds: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = expand(composed(["model=small14"])["model"]["rows"], width=1.0, classes=1000)
    network = Network(rows, prelu, channels=3, input_px=224).eval()
    images = [torch.randn(1, 3, *size) for size in SIZES]
    images += [image.flip(3) for image in images]
    crops = torch.randn(10, 3, 224, 224)
    counts = [
        (maps.shape[2] - WINDOW + 1) * (maps.shape[3] - WINDOW + 1) for maps in map(network.trunk, images[: len(SIZES)])
    ]

    @torch.inference_mode()
    def dense() -> torch.Tensor:
        return torch.stack([mean_window_scores(network.head, network.trunk(image), WINDOW) for image in images]).mean(0)

    @torch.inference_mode()
    def cut() -> torch.Tensor:
        found = []
        for image in images:
            maps = network.trunk(image)
            tops, lefts = range(maps.shape[2] - WINDOW + 1), range(maps.shape[3] - WINDOW + 1)
            windows = [maps[:, :, top : top + WINDOW, left : left + WINDOW] for top in tops for left in lefts]
            found.append(torch.stack([network.head(window).softmax(1) for window in windows]).mean(0))
        return torch.stack(found).mean(0)

    @torch.inference_mode()
    def ten() -> torch.Tensor:
        return network(crops).softmax(1).mean(0)

    difference = float((dense() - cut()).abs().max())
    seconds = interleave({"dense": dense, "windows one by one": cut, "ten crops": ten}, rounds)
    times = {name: ratios(seconds, name, "dense") for name in seconds}
    middle = {name: sorted(taken)[len(taken) // 2] for name, taken in seconds.items()}
    shown = [(name, f"{middle[name]:.2f}", spread(r)) for name, r in times.items()]
    show(f"{2 * sum(counts)} windows, {rounds} rounds", shown, ("", "CPU s an image", "times dense"))
    print(f"largest difference of a mean score: {difference:.1e}")
    keep(
        "windows",
        {"rounds": rounds, "windows": counts, "times_dense": times, "seconds": middle, "difference": difference},
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
