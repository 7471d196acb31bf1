"""What is said before a run of several processes begins."""

import pytest

from conftest import compose_config
from rectifiers.runtime.distributed import SINGLE_PROCESS, World
from rectifiers.runtime.errors import InputError
from rectifiers.training.preflight import check_hardware, warn_of_stale_addresses


@pytest.mark.parametrize(
    ("overrides", "here"),
    [
        (["trainer.devices=4"], SINGLE_PROCESS),
        (["trainer.num_nodes=2", "trainer.devices=8"], SINGLE_PROCESS),
        (["trainer.devices=3"], World(1, 4, 1, 2)),
    ],
)
def test_other_processes_than_were_started_are_refused(overrides: list[str], here: World) -> None:
    place = rf"{overrides[-1]} .* nodes={here.nodes} with {here.size // here.nodes} each"
    with pytest.raises(InputError, match=place):
        check_hardware(compose_config(*overrides), here)


def test_restarts_that_would_look_for_the_dead_are_named(capfd: pytest.CaptureFixture[str]) -> None:
    for restarts, shared in (("0", "True"), ("3", "False"), ("3", "True")):
        warn_of_stale_addresses(
            {"TORCHELASTIC_MAX_RESTARTS": restarts, "TORCHELASTIC_USE_AGENT_STORE": shared}
        )
    assert capfd.readouterr().err.count("TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1") == 1
