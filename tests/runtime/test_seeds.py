from rectifiers.runtime.seeds import mix


def test_a_seed_is_the_same_on_every_machine() -> None:
    assert mix("weights", 0, 0) == 7832036299356537424
    assert mix("order", 0, 1) != mix("order", 1, 0)


def test_streams_differ_where_only_the_name_does() -> None:
    assert len({mix(name, 0, 0) for name in ("weights", "order", "augmentation", "dropout")}) == 4


def test_seeds_fit_every_generator() -> None:
    assert all(0 <= mix("order", seed) < 2**63 for seed in range(1000))
