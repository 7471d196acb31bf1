"""What is said before a run of several processes begins."""

import pytest

from conftest import compose_config
from rectifiers.runtime.distributed import SINGLE_PROCESS, World
from rectifiers.runtime.errors import InputError
from rectifiers.training.preflight import check_hardware, warn_of_stale_addresses


@pytest.mark.parametrize(
    ("overrides", "here", "command"),
    [
        (["trainer.devices=4"], SINGLE_PROCESS, r"torchrun --standalone --nproc-per-node=4 "),
        (
            ["trainer.num_nodes=2", "trainer.devices=8"],
            SINGLE_PROCESS,
            r"torchrun --nnodes=2 .*--nproc-per-node=8 train\.py",
        ),
        (
            ["trainer.devices=3"],
            World(1, 4, 1, 2),
            r"asks for 3 processes, and 4 on 2 nodes were started; type: ",
        ),
    ],
)
def test_other_processes_than_were_started_get_the_command(
    overrides: list[str], here: World, command: str
) -> None:
    with pytest.raises(InputError, match=command):
        check_hardware(compose_config(*overrides), here)


def test_restarts_that_would_look_for_the_dead_are_named(capfd: pytest.CaptureFixture[str]) -> None:
    for restarts, shared in (("0", "True"), ("3", "False"), ("3", "True")):
        warn_of_stale_addresses(
            {"TORCHELASTIC_MAX_RESTARTS": restarts, "TORCHELASTIC_USE_AGENT_STORE": shared}
        )
    assert capfd.readouterr().err.count("TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1") == 1
