"""torch.compile needs a C compiler and most of a minute, so these are proofs for `make
test-slow`."""

import pytest
import torch

from conftest import compose_config, weights
from rectifiers.training.train import train


@pytest.mark.slow
def test_compiled_run_has_the_same_name_and_numbers(tiny, tmp_path) -> None:
    plain = train(tiny(f"runs_dir={tmp_path}/plain"), {})
    compiled = train(tiny("compile=true", f"runs_dir={tmp_path}/compiled"), {})
    assert compiled.record.run == plain.record.run
    one, other = weights(plain), weights(compiled)
    assert one.keys() == other.keys()
    assert all(torch.allclose(one[name], other[name], atol=1e-4) for name in one)


@pytest.mark.slow
def test_a_compiled_run_that_diverges_names_its_layer(tiny) -> None:
    outcome = train(tiny("compile=true", "optim.lr=1e6", "activation=relu"), {})
    assert outcome.record.status == "diverged"
    assert outcome.record.diverged.layer != ""


@pytest.mark.slow
def test_compiled_convolutions_keep_their_numbers(tmp_path) -> None:
    options = ("model=mini", "data=digits8", "optim=plain", "evaluation=[center]", "logger=none")
    options += ("trainer.max_epochs=1", "trainer.precision=64-true", f"cache_dir={tmp_path}/cache")
    states = []
    for more in ((), ("compile=true",)):
        outcome = train(compose_config(*options, *more, f"runs_dir={tmp_path}/{len(states)}"), {})
        states.append(weights(outcome))
    plain, compiled = states
    for name, weight in plain.items():
        torch.testing.assert_close(compiled[name], weight, rtol=1e-9, atol=1e-12)
