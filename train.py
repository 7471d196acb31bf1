"""`python train.py activation=prelu init=he`: compose the configuration, run it, print its record's path.

Nothing heavy is imported before the run starts, so `--help` and `--cfg job` answer at once.
"""

import sys

import hydra
from omegaconf import DictConfig

from rectifiers.cli.help import wanted
from rectifiers.cli.train import explain_refusal, launch, tell_help


@hydra.main(config_path="conf", config_name="train", version_base="1.3")
def main(config: DictConfig) -> float:
    return launch(config)


if __name__ == "__main__":
    with explain_refusal(sys.argv[1:]):
        tell_help(sys.argv[1:]) if wanted(sys.argv[1:]) else main()
