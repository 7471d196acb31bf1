"""`python train.py activation=prelu init=he`: the same program as `rectifiers-train` of an
installed package."""

if __name__ == "__main__":
    from rectifiers.runtime.distributed import end_with_launcher

    end_with_launcher()  # before what takes a second to import
    from rectifiers.cli.train import main

    main()
