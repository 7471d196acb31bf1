"""torch.compile needs a C compiler and most of a minute, so these are proofs for `make test-slow`."""

import pytest
import torch

from rectifiers.training.run import train


@pytest.mark.slow
def test_compiling_in_place_keeps_the_name_the_keys_and_the_numbers(tiny) -> None:
    plain = train(tiny("runs_dir=${cache_dir}/plain"), {})
    compiled = train(tiny("compute.compile=true", "runs_dir=${cache_dir}/compiled"), {})
    assert compiled.record["run"] == plain.record["run"]
    one, other = (
        torch.load(outcome.path.parent / "last.ckpt", weights_only=True)["state_dict"] for outcome in (plain, compiled)
    )
    assert one.keys() == other.keys()
    assert all(torch.allclose(one[name], other[name], atol=1e-4) for name in one)


@pytest.mark.slow
def test_a_compiled_run_that_diverges_names_its_layer(tiny) -> None:
    outcome = train(tiny("compute.compile=true", "optim.lr=1e6", "activation=relu"), {})
    assert outcome.record["status"] == "diverged"
    assert outcome.record["diverged"]["layer"] != ""
