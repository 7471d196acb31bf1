import pytest

from conftest import compose_config
from rectifiers.runs.identity import run_id, science
from refusals import refused


def name(*overrides: str) -> str:
    return run_id(science(compose_config(*overrides)))


PART = """
seed=1 activation=relu activation.initial_slope=0.1 init=xavier init.bias=0.01 model.width=0.5
model.norm=batch preprocess=zca optim.lr=0.02 trainer.max_epochs=41
+optim.slope_weight_decay=0.001 scheduler=multistep scheduler=cosine scheduler.warmup_epochs=1
optim=adamw +optim.nesterov=true +trainer.gradient_clip_val=1.0 data.split_seed=1
data.scale_jitter_px=[32,40] data.color_sigma=0.1 data.crop_px=30 data.pad_px=4
data.protocol=paper data.val_per_class=9 trainer.precision=bf16-mixed fast=true
"""


@pytest.mark.parametrize("override", PART.split())
def test_what_can_move_a_number_makes_another_run(override: str) -> None:
    assert name(override) != name()


def test_onlooking_callbacks_are_no_part_of_the_id() -> None:
    assert name("callbacks=model_checkpoint") == name()
    assert name("callbacks=early_stopping") != name()
    both = name("callbacks=[early_stopping,model_checkpoint]")
    assert both == name("callbacks=early_stopping")


NO_PART = """
data.num_workers=4 threads=3 compile=true channels_last=true optim.fused=false
trainer.benchmark=true logger=wandb rerun=true tags=[trial]
ckpt_path=last.ckpt trainer.devices=2 runs_dir=there evaluation=[center]
data.dense_scales_px=[40] data.width=0.25 optim.lr=0.010 optim.momentum=9e-1 init.bias=0
"""


@pytest.mark.parametrize("override", NO_PART.split())
def test_what_cannot_does_not(override: str) -> None:
    assert name(override) == name()


@pytest.mark.parametrize(
    ("plain", "overrides"),
    [
        ("data=imagenet", "data.allow_unpinned=true"),
        ("data=imagenette data.size=160px", "data.size=full"),
        ("init=lecun", "init=xavier_forward"),
    ],
)
def test_equal_science_is_one_run(plain: str, overrides: str) -> None:
    """The hash of prepared data is that of the original files."""
    content = ["data.content=abc"] if "data=" in plain else []
    for override in overrides.split():
        assert name(*plain.split(), *content, override) == name(*plain.split(), *content)


def test_fast_runs_are_one_run_on_any_hardware() -> None:
    fast = name("trainer=gpu", "fast=true")
    assert fast == name("trainer=ddp", "fast=true", "trainer.precision=bf16-mixed", "compile=false")
    assert fast != name("trainer=gpu", "trainer.precision=bf16-mixed", "compile=true")


def test_content_of_data_counts_and_not_its_place() -> None:
    here = name("data=folder", "data.content=abc", "data.root=here")
    assert here == name("data=folder", "data.content=abc", "data.root=there")
    assert here != name("data=folder", "data.content=abd", "data.root=here")


def test_spelling_of_science_changes_no_name() -> None:
    assert run_id({"a": 1, "b": [2]}) == run_id({"b": (2.0,), "a": 1.0})


def test_empirical_mode_alone_is_part_of_the_id() -> None:
    usual, same, other = (
        science(compose_config("init.fc_std=null", *more))
        for more in ((), ("init.mode=closed_form",), ("init.mode=empirical",))
    )
    assert run_id(usual) == run_id(same) != run_id(other)
    assert "mode" not in usual["init"]
    with refused(r"init.fc_std=null"):
        compose_config("init.mode=empirical", "init.fc_std=[.01,.01,.001]")
