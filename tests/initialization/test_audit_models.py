"""`audit` reads the networks of torchvision and timm, and the gallery of faults."""

from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torchvision import models

from conftest import load_script
from rectifiers import audit
from rectifiers.initialization.audit import AuditReport

study = load_script("studies/faults")


def batch(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def _same_draws() -> None:
    torch.manual_seed(0)


def severities(report: AuditReport, tensor: str) -> set[str]:
    return {x.severity for x in report.findings if tensor in x.tensors}


@pytest.mark.parametrize("name", study.FAULTS)
def test_faults_are_found_until_they_are_cured(name: str) -> None:
    fault, x = study.FAULTS[name], study.digits()[0][:8]
    assert fault.severity in severities(audit(study.build(fault, False), x), fault.tensor)
    cured = audit(study.build(fault, True), x)
    assert fault.severity not in severities(cured, fault.tensor)
    assert not cured.errors + cured.warnings


def test_page_says_what_audit_says() -> None:
    text = study.PAGE.read_text()
    assert all(f"**{name}**" in text for name in study.FAULTS)
    for name in ("a bias that nothing fills", "depthwise fan"):
        assert study.sentence(study.FAULTS[name]).split(" = ")[0] in text


def test_trained_weights_are_judged_by_errors_alone() -> None:
    model = study.chain(3, nn.ReLU)
    study.train(model, steps=300)
    report = audit(model, study.digits()[0][:8])
    assert [x.severity for x in report.findings] == ["note"]
    nn.init.constant_(model[0].bias, -1000.0)
    assert audit(model, study.digits()[0][:8]).errors


def test_layers_of_one_std_are_not_scaled_by_depth() -> None:
    model = study.Transformer(scaled=())
    for block in model.blocks:  # by the rule of its fans, which explains that it is larger
        nn.init.kaiming_normal_(block.feed_forward.w1.weight)
    findings = audit(model, study.digits()[0][:8]).findings
    assert not [x for x in findings if "blocks.0.attention.wq.weight" in x.tensors]


def test_nothing_of_the_model_changes() -> None:
    model = models.mobilenet_v2(num_classes=4)
    nn.init.zeros_(model.classifier[1].weight)  # so that a copy is trained, too
    model.train()
    model.features[0].eval()
    model(batch(4, 3, 32, 32)).sum().backward()
    x, state = batch(4, 3, 32, 32), torch.get_rng_state()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    grads = [p.grad.clone() for p in model.parameters()]
    modes = [m.training for m in model.modules()]
    audit(model, x)
    assert model.state_dict().keys() == before.keys()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), grads, strict=True))
    assert [m.training for m in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(x, batch(4, 3, 32, 32))


SHIPPED = {
    "squeezenet1_1": models.squeezenet1_1,
    "resnet18": models.resnet18,
    "resnet18, last gammas 0": partial(models.resnet18, zero_init_residual=True),
    "mobilenet_v3_small": models.mobilenet_v3_small,
    "shufflenet_v2_x0_5": models.shufflenet_v2_x0_5,
}
# of torchvision, or else of timm, which are run at 128 px, and those with maps of a fixed size
ANY_SIZE = """
alexnet vgg11 vgg16_bn resnet18 resnet50 resnext50_32x4d wide_resnet50_2 densenet121 googlenet
mobilenet_v2 mobilenet_v3_small efficientnet_b0 efficientnet_v2_s mnasnet1_0 shufflenet_v2_x1_0
squeezenet1_1 regnet_y_400mf convnext_tiny convmixer_768_32 poolformer_s12 nf_resnet50 dm_nfnet_f0
resnet50d seresnet50 ecaresnet26t ghostnet_100 repvgg_a0 hrnet_w18_small dla34 dpn68 cspresnet50
fastvit_t8 convnextv2_atto res2net50_26w_4s tf_efficientnet_lite0 regnetz_040
"""
FIXED_SIZE = """
inception_v3 swin_t swin_v2_t vit_b_32 maxvit_t vit_tiny_patch16_224 deit_tiny_patch16_224
cait_xxs24_224 beit_base_patch16_224 mixer_s16_224 resmlp_12_224 gmlp_ti16_224 botnet26t_256
coatnet_0_224 maxvit_tiny_rw_224 levit_128 efficientformer_l1 mobilevit_xs xcit_nano_12_p16_224
pvt_v2_b0 twins_pcpvt_small tnt_s_patch16_224 visformer_tiny edgenext_small volo_d1_224
eva02_tiny_patch14_224 crossvit_tiny_240 sequencer2d_s davit_tiny
"""
# each read by hand: the class token behind layer scales of 1e-5 sees next to nothing of the image;
# 64 batch normalisations, half of them without a shortcut, multiply the gradient
WARNED = {"cait_xxs24_224", "convmixer_768_32"}


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_networks_have_no_errors(name: str) -> None:
    report = audit(SHIPPED[name](), (4, 3, 64, 64))
    assert not report.errors + report.warnings
    assert len(report.findings) <= 2


@pytest.mark.slow
@pytest.mark.parametrize("name", (ANY_SIZE + FIXED_SIZE).split())
def test_sixty_shipped_networks_have_no_errors(name: str) -> None:
    if hasattr(models, name):
        model, px = getattr(models, name)(), 299 if name == "inception_v3" else 224
    else:
        model = pytest.importorskip("timm").create_model(name)
        px = model.pretrained_cfg["input_size"][-1]
    px = 128 if name in ANY_SIZE.split() else px
    report = audit(model, (3, 3, px, px))
    assert not report.errors
    assert bool(report.warnings) == (name in WARNED)
