"""One small model of each of timm's families, with random weights: a replay equals eager."""

import nimble
import pytest
import torch

timm = pytest.importorskip("timm")

pytestmark = pytest.mark.usefixtures("one_thread")

# timm's module: its smallest model.
FAMILIES = {
    "beit": "beit_base_patch16_224",
    "byoanet": "halonet_h1",
    "byobnet": "test_byobnet",
    "cait": "cait_xxs24_224",
    "coat": "coat_tiny",
    "convit": "convit_tiny",
    "convmixer": "convmixer_768_32",
    "convnext": "test_convnext",
    "cpubone": "cpubone_nano",
    "crossvit": "crossvit_tiny_240",
    "csatv2": "csatv2",
    "cspnet": "cs3darknet_focus_s",
    "cspnext": "cspnext_tiny",
    "davit": "davit_tiny",
    "deepseek_vit": "deepseek_vit_412m",
    "deit": "deit_tiny_patch16_224",
    "densenet": "densenet121",
    "dla": "dla46x_c",
    "dpn": "dpn48b",
    "edgenext": "edgenext_xx_small",
    "efficientformer": "efficientformer_l1",
    "efficientformer_v2": "efficientformerv2_s0",
    "efficientnet": "test_efficientnet",
    "efficientvim": "efficientvim_m1",
    "efficientvit_mit": "efficientvit_b0",
    "efficientvit_msra": "efficientvit_m0",
    "eva": "vit_tiny_patch16_dinov3_qkvb",
    "fasternet": "fasternet_t0",
    "fastvit": "fastvit_t8",
    "focalnet": "focalnet_tiny_srf",
    "gcvit": "gcvit_xxtiny",
    "gemma4_vit": "gemma4_vit_167m",
    "ghostnet": "ghostnet_050",
    "hardcorenas": "hardcorenas_b",
    "hgnet": "hgnetv2_b0",
    "hiera": "hiera_tiny_224",
    "hieradet_sam2": "sam2_hiera_tiny",
    "hrnet": "hrnet_w18_small",
    "iformer": "iformer_t",
    "inception_next": "inception_next_atto",
    "inception_resnet_v2": "inception_resnet_v2",
    "inception_v3": "inception_v3",
    "inception_v4": "inception_v4",
    "lcnetv2": "lcnetv2_small",
    "levit": "levit_128s",
    "lowformer": "lowformer_b0",
    "mambaout": "test_mambaout",
    "maxxvit": "maxvit_pico_rw_256",
    "metaformer": "poolformerv2_s12",
    "mlp_mixer": "gmlp_ti16_224",
    "mobilenetv3": "mobilenetv3_small_050",
    "mobilenetv5": "mobilenetv5_base",
    "mobilevit": "mobilevit_xxs",
    "mvitv2": "mvitv2_tiny",
    "naflexvit": "naflexvit_base_patch16_parfac_gap",
    "nasnet": "nasnetalarge",
    "nest": "nest_tiny",
    "nextvit": "nextvit_small",
    "nfnet": "test_nfnet",
    "pit": "pit_ti_224",
    "pnasnet": "pnasnet5large",
    "pvt_v2": "pvt_v2_b0",
    "qwen3_vit": "qwen3_vit_88m",
    "rdnet": "rdnet_tiny",
    "regnet": "regnetx_002",
    "repghost": "repghostnet_050",
    "repvit": "repvit_m1",
    "res2net": "res2next50",
    "resnest": "resnest14d",
    "resnet": "test_resnet",
    "resnetv2": "resnetv2_18",
    "rexnet": "rexnet_100",
    "selecsls": "selecsls42",
    "senet": "legacy_seresnet18",
    "sequencer": "sequencer2d_s",
    "shvit": "shvit_s1",
    "sknet": "skresnet18",
    "starnet": "starnet_s050",
    "swiftformer": "swiftformer_xs",
    "swin_transformer": "swin_tiny_patch4_window7_224",
    "swin_transformer_v2": "swinv2_tiny_window8_256",
    "swin_transformer_v2_cr": "swinv2_cr_tiny_224",
    "tiny_vit": "tiny_vit_5m_224",
    "tnt": "tnt_s_legacy_patch16_224",
    "tresnet": "tresnet_m",
    "twins": "twins_svt_small",
    "vgg": "vgg11",
    "visformer": "visformer_tiny",
    "vision_transformer": "test_vit",
    "vision_transformer_hybrid": "vit_tiny_r_s16_p8_224",
    "vision_transformer_relpos": "vit_srelpos_small_patch16_224",
    "vision_transformer_sam": "samvit_base_patch16_224",
    "vitamin": "vitamin_small_224",
    "volo": "volo_d1_224",
    "vovnet": "ese_vovnet19b_slim_dw",
    "xception": "legacy_xception",
    "xception_aligned": "xception41p",
    "xcit": "xcit_nano_12_p8_224",
}

# What else is needed to keep a model small, or to build it at all; the image is 64x64 otherwise.
SIZES = {
    "byoanet": 256,  # in blocks of 8x8 after a stride of 32
    "deepseek_vit": 112,  # patches of 14x14
    "efficientformer": 224,  # its position table
    "inception_resnet_v2": 96,
    "inception_v3": 96,
    "inception_v4": 96,
}
OPTIONS = {
    "beit": {"depth": 2},
    "cait": {"depth": 4},
    "deepseek_vit": {"depth": 2, "embed_dim": 96, "num_heads": 4},
    "gemma4_vit": {"depth": 2},
    "naflexvit": {"depth": 2},
    "qwen3_vit": {"depth": 2},
    "tnt": {"depth": 4},
    "vision_transformer_sam": {"depth": 2, "global_attn_indexes": (1,)},
}
SCALES_THE_IMAGE = {"crossvit"}  # to its own size


def build(family):
    """The model, and two images for it."""
    name = FAMILIES[family]
    size = SIZES.get(family, 64)
    options = dict(OPTIONS.get(family, {}))
    if timm.get_pretrained_cfg(name).fixed_input_size and family not in SCALES_THE_IMAGE:
        options["img_size"] = size
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = timm.create_model(name, pretrained=False, **options).eval()
        with torch.no_grad():
            for parameter in model.parameters():  # many start as zero, and would hide the input
                parameter.add_(torch.randn_like(parameter), alpha=0.02)
        return model, *torch.randn(2, 1, 3, size, size)


def leaves(output):
    return [output] if isinstance(output, torch.Tensor) else [t for o in output for t in leaves(o)]


# The installed timm may be older or newer than this list, by a few families.
PRESENT = [family for family, name in FAMILIES.items() if timm.list_models(name, module=family)]


def test_nearly_every_family_is_here():
    assert len(PRESENT) >= 0.95 * max(len(FAMILIES), len(timm.list_modules()))


@pytest.mark.parametrize("family", PRESENT)
def test_replay_equals_eager(family):
    model, x, new = build(family)
    with torch.no_grad():
        other, expected = leaves(model(x)), leaves(model(new))
    assert all(t.isfinite().all() for t in expected)
    assert not all(map(torch.equal, expected, other))

    one = nimble.Nimble(model, streams=1, kernels="torch").prepare(x)
    assert one.schedule.verify() == []
    assert all(map(torch.equal, leaves(one(new)), expected))

    two = nimble.Nimble(model, streams=2, kernels="torch").prepare(x)
    assert two.schedule.verify() == []
    for y, e in zip(leaves(two(new)), expected, strict=True):
        assert (y - e).abs().max() <= 1e-4 * e.abs().max()
