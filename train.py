"""`python train.py activation=prelu init=he`: the same program as `rectifiers-train` of an installed package."""

from rectifiers.cli.train import main

if __name__ == "__main__":
    main()
