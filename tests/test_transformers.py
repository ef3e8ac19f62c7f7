"""Models of the transformers library, small and with random weights: a replay equals eager.

Outputs keep their type, keys and caches. Where the library reads a mask's values to choose what to
do, recording is refused; a mask of four dimensions, which it takes as it is, works.
"""

import copy
from collections.abc import Mapping
from functools import partial

import nimble
import pytest
import torch

T = pytest.importorskip("transformers")

pytestmark = pytest.mark.usefixtures("one_thread")

VOCABULARY, TOKENS, NEW_TOKENS = 99, 12, 5


def random(seed):
    return torch.Generator().manual_seed(seed)


def ids(seed, tokens=TOKENS):
    return torch.randint(3, VOCABULARY, (2, tokens), generator=random(seed))


def mask(seed, size=TOKENS):
    """Two sequences, the first of which ends early, at another token for each seed."""
    return (torch.arange(size) < torch.tensor([[size - 1 - seed], [size]])).long()


def added_mask(seed, causal):
    """The same in four dimensions, as what is added to the attention's scores."""
    seen = mask(seed).bool()[:, None, None, :]
    if causal:
        seen = seen & torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
    return torch.where(seen, 0.0, torch.finfo(torch.float32).min)


def text(seed):
    return {"input_ids": ids(seed)}


def text_to_text(seed):
    return {"input_ids": ids(seed), "decoder_input_ids": ids(seed + 10, NEW_TOKENS)}


def text_to_labels(seed):
    return {"input_ids": ids(seed), "labels": ids(seed + 10, NEW_TOKENS)}


def pixels(seed, size=32):
    return {"pixel_values": torch.randn(2, 3, size, size, generator=random(seed))}


def pixels_and_text(seed):
    return pixels(seed) | text(seed)


def sound(seed):
    return {"input_values": torch.randn(2, 400, generator=random(seed))}


def spectrum(seed):
    features = torch.randn(2, 16, 60, generator=random(seed))
    return {"input_features": features, "decoder_input_ids": ids(seed, NEW_TOKENS)}


LAYERS = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 37,
}
TEXT = LAYERS | {"vocab_size": VOCABULARY, "max_position_embeddings": 64}
PATCHES = {"image_size": 32, "patch_size": 8}
T5 = {
    "d_model": 32, "d_kv": 8, "d_ff": 37, "num_layers": 2, "num_heads": 4,
    "vocab_size": VOCABULARY, "decoder_start_token_id": 0,
}  # fmt: skip
WHISPER = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 37, "decoder_ffn_dim": 37,
    "num_mel_bins": 16, "max_source_positions": 30, "max_target_positions": 20,
    "vocab_size": VOCABULARY, "pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 2,
    "decoder_start_token_id": 2,
}  # fmt: skip
WAV2VEC2 = LAYERS | {
    "vocab_size": VOCABULARY, "conv_dim": (16, 16), "conv_kernel": (8, 4), "conv_stride": (4, 2),
    "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
}  # fmt: skip

# The model, its configuration, what the configuration is given, and the inputs.
MODELS = {
    "bert": ("BertModel", "BertConfig", TEXT, text),
    "gpt2": (
        "GPT2LMHeadModel",
        "GPT2Config",
        {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": VOCABULARY},
        text,
    ),
    "t5": ("T5ForConditionalGeneration", "T5Config", T5, text_to_text),
    "t5 loss": ("T5ForConditionalGeneration", "T5Config", T5, text_to_labels),
    "vit": ("ViTForImageClassification", "ViTConfig", LAYERS | PATCHES, pixels),
    "whisper": ("WhisperForConditionalGeneration", "WhisperConfig", WHISPER, spectrum),
    "llama": ("LlamaForCausalLM", "LlamaConfig", TEXT | {"num_key_value_heads": 2}, text),
    "clip": (
        "CLIPModel",
        "CLIPConfig",
        {
            "text_config": TEXT | {"bos_token_id": 1, "eos_token_id": 2},
            "vision_config": LAYERS | PATCHES,
            "projection_dim": 16,
        },
        pixels_and_text,
    ),
    "distilbert": (
        "DistilBertForSequenceClassification",
        "DistilBertConfig",
        {
            "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 37, "vocab_size": VOCABULARY,
            "max_position_embeddings": 64,
        },
        text,
    ),
    "swin": (
        "SwinModel",
        "SwinConfig",
        {
            "image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [1, 2],
            "num_heads": [2, 4], "window_size": 4,
        },
        pixels,
    ),
    "convnext": (
        "ConvNextModel",
        "ConvNextConfig",
        {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 2, 1]},
        partial(pixels, size=64),
    ),
    "wav2vec2": ("Wav2Vec2Model", "Wav2Vec2Config", WAV2VEC2, sound),
}  # fmt: skip
ATTENTION = ["eager", "sdpa"]


def build(name, attention):
    model, config, settings, inputs = MODELS[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = getattr(T, config)(**settings)
        model = getattr(T, model)._from_config(config, attn_implementation=attention)
    return model.eval(), inputs


def parts(value, path=""):
    """Every tensor and plain value in a structure, by its path; and the types on the way."""
    if isinstance(value, Mapping):
        inside = value.items()
    elif isinstance(value, (list, tuple)):
        inside = enumerate(value)
    elif hasattr(value, "__dict__") and not isinstance(value, (torch.Tensor, type, T.PretrainedConfig)):
        inside = vars(value).items()
    else:
        yield path, value
        return
    yield path, type(value)
    for key, part in inside:
        yield from parts(part, f"{path}.{key}")


def assert_equal(result, expected, tolerance=0.0):
    result, expected = dict(parts(result)), dict(parts(expected))
    assert list(result) == list(expected)
    assert any(isinstance(value, torch.Tensor) for value in expected.values())
    for path, value in expected.items():
        if isinstance(value, torch.Tensor) and tolerance:
            assert (result[path] - value).abs().max() <= tolerance * value.abs().max(), path
        elif isinstance(value, torch.Tensor):
            assert torch.equal(result[path], value), path
        else:
            assert result[path] == value, path


def check(model, inputs, streams=1):
    """Records with one set of inputs and replays with two others."""
    engine = nimble.Nimble(model, streams=streams, kernels="torch").prepare(**inputs(1))
    assert engine.schedule.verify() == []
    for seed in (2, 3):
        with torch.no_grad():
            expected = model(**inputs(seed))
        assert_equal(engine(**inputs(seed)), expected, 0.0 if streams == 1 else 1e-4)


@pytest.mark.parametrize("streams", [1, 2])
@pytest.mark.parametrize("attention", ATTENTION)
@pytest.mark.parametrize("name", MODELS)
def test_replay_equals_eager(name, attention, streams):
    if name == "convnext" and attention == "sdpa":
        pytest.skip("has no attention")
    model, inputs = build(name, attention)
    check(model, inputs, streams)


@pytest.mark.parametrize("attention", ATTENTION)
@pytest.mark.parametrize("name", ["bert", "distilbert", "t5", "gpt2", "llama", "clip"])
def test_mask_of_four_dimensions(name, attention):
    """It is added as it is; and it means what the mask of two dimensions means."""
    model, inputs = build(name, attention)
    causal = name in ("gpt2", "llama", "clip")
    check(model, lambda seed: inputs(seed) | {"attention_mask": added_mask(seed, causal)})
    with torch.no_grad():
        four = model(**inputs(2), attention_mask=added_mask(2, causal))
        two = model(**inputs(2), attention_mask=mask(2))
    torch.testing.assert_close(four[0], two[0])


@pytest.mark.parametrize("name", ["gpt2", "llama", "clip"])
def test_mask_of_two_dimensions_with_causal_eager_attention(name):
    model, inputs = build(name, "eager")
    check(model, lambda seed: inputs(seed) | {"attention_mask": mask(seed)})


@pytest.mark.parametrize(
    "name, attention",
    [
        *[("bert", a) for a in ATTENTION],
        *[("distilbert", a) for a in ATTENTION],
        *[("t5", a) for a in ATTENTION],
        *[("wav2vec2", a) for a in ATTENTION],
        ("gpt2", "sdpa"),
        ("llama", "sdpa"),
        ("clip", "sdpa"),
    ],
)
def test_mask_whose_values_are_read_is_refused(name, attention):
    """The library leaves a mask out that hides nothing: it reads whether that is so."""
    model, inputs = build(name, attention)
    hiding = mask(1, 400 if name == "wav2vec2" else TOKENS)
    with pytest.raises(nimble.Refused, match=r"_local_scalar_dense at .*masking_utils\.py:\d+"):
        nimble.Nimble(model).prepare(**inputs(1), attention_mask=hiding)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_torch_compile_takes_masks_of_two_dimensions(name):
    """While torch.compile captures a model, the library reads no mask."""
    model, inputs = build(name, "sdpa")
    compiled = torch.compile(model, backend=nimble.torch_compile_backend)
    with torch.no_grad():
        compiled(**inputs(1), attention_mask=mask(1))
        result = compiled(**inputs(2), attention_mask=mask(2))
        expected = model(**inputs(2), attention_mask=mask(2))
    torch.testing.assert_close(result[0], expected[0])


def test_each_call_returns_its_own_cache():
    model, inputs = build("gpt2", "sdpa")
    engine = nimble.Nimble(model, streams=1, kernels="torch").prepare(**inputs(1))
    with torch.no_grad():
        eager = model(**inputs(2)).past_key_values
        ours = engine(**inputs(2)).past_key_values
        other = engine(**inputs(3)).past_key_values
        for cache in (ours, eager, other):  # grows the cache
            model(input_ids=ids(4, 1), past_key_values=cache)
        assert_equal(ours, eager)
        assert ours.get_seq_length() == TOKENS + 1
        assert engine(**inputs(2)).past_key_values.get_seq_length() == TOKENS


@pytest.mark.parametrize("attention", ATTENTION)
def test_decoding_with_a_static_cache(attention):
    """A cache of a fixed size is written in place; replays do so too, one after another."""
    model, inputs = build("llama", attention)

    def filled(seed):
        cache = T.StaticCache(config=model.config, max_cache_len=20)
        with torch.no_grad():
            model(**inputs(seed), past_key_values=cache)
        return cache

    example, ours, eager = filled(1), filled(2), filled(2)
    engine = nimble.Nimble(model, streams=1, kernels="torch")
    engine.prepare(input_ids=ids(1, 1), past_key_values=example)
    assert_equal(example, filled(1))
    for step in range(4):
        token = ids(step + 10, 1)
        with torch.no_grad():
            expected = model(input_ids=token, past_key_values=eager)
        assert_equal(engine(input_ids=token, past_key_values=ours).logits, expected.logits)
        assert_equal(ours, eager)


def test_a_growing_cache_that_is_passed_in_grows_or_is_refused():
    """The model puts new tensors into the caller's object; eager changes it, so must a replay."""
    model, inputs = build("llama", "sdpa")
    with torch.no_grad():
        example, eager = (model(**inputs(seed)).past_key_values for seed in (1, 2))
    ours = copy.deepcopy(eager)
    try:
        engine = nimble.Nimble(model, streams=1, kernels="torch")
        engine.prepare(input_ids=ids(1, 1), past_key_values=example)
    except nimble.NimbleError:
        return
    with torch.no_grad():
        expected = model(input_ids=ids(3, 1), past_key_values=eager)
    assert_equal(engine(input_ids=ids(3, 1), past_key_values=ours), expected)
    assert_equal(ours, eager)
