from rectifiers.runtime.seeds import derive_seed


def test_seeds_are_the_same_everywhere() -> None:
    assert derive_seed("weights", 0, 0) == 7832036299356537424
    seeds = {derive_seed(name, i, 1) for name in ("weights", "order") for i in range(1000)}
    assert len(seeds) == 2000
    assert all(0 <= seed < 2**63 for seed in seeds)
