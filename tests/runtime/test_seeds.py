from rectifiers.runtime.seeds import derive_seed


def test_a_seed_is_the_same_on_every_machine() -> None:
    assert derive_seed("weights", 0, 0) == 7832036299356537424
    assert derive_seed("order", 0, 1) != derive_seed("order", 1, 0)


def test_streams_of_different_names_differ() -> None:
    assert (
        len({derive_seed(name, 0, 0) for name in ("weights", "order", "augmentation", "dropout")})
        == 4
    )


def test_seeds_fit_every_generator() -> None:
    assert all(0 <= derive_seed("order", seed) < 2**63 for seed in range(1000))
