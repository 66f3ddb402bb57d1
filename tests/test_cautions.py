"""Cautions: values that were probably not meant, and readings of other programs; each with what was meant."""

import pytest

import rope_any as ra

QWEN = {"model_type": "qwen2", "head_dim": 128, "rope_theta": 1e6, "max_position_embeddings": 32_768}
GEMMA = {"model_type": "gemma3_text", "head_dim": 256, "num_hidden_layers": 6}
DBRX = {"model_type": "dbrx", "d_model": 256, "n_heads": 2, "attn_config": {"rope_theta": 5e5}}


def yarn(original, factor=4.0, key="rope_scaling", **others):
    return {key: {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original, **others}}


LINEAR, DYNAMIC = {"type": "linear", "factor": 2.0}, {"rope_scaling": {"type": "dynamic", "factor": 2.0}}
FOUND = [
    (QWEN | yarn(131_072), "is beyond", "32768, and max_position_embeddings 131072"),
    (QWEN | yarn(32_768), "is 131072, but max_position_embeddings is 32768", "max_position_embeddings 131072"),
    (QWEN | yarn(8_192, 2.0), "is 16384, but max_position_embeddings is 32768", "probably factor 4"),
    (QWEN | yarn(65_536, None), "32768, so that the factor is 0.5", "32768, and max_position_embeddings 65536"),
    (QWEN | {"rope_scaling": LINEAR | {"max_position_embeddings": 65_536}}, "32768, rope_scaling.max_posi", "is read"),
    ({"model_type": "gpt_neox", "head_dim": 64}, "no rotary_emb_base: 10000 is the default", "rotary_emb_base 10000"),
    (GEMMA | {"rope_local_base_freq": 1e4}, "1000000 is the default of gemma3_text, while", "rope_theta 1000000"),
    (QWEN | {"rope_parameters": LINEAR}, "rotate up to 2 times as fast", "as_transformers(version=4)"),
    ({"model_type": "llama", "head_dim": 64, "rope_scaling": {"rope_theta": 1e6}}, "pairs rotate up to 86.6", "4)"),
    (QWEN | yarn(32_768), "take the factor 1, max_", "make the numbers agree"),
    (QWEN | DYNAMIC, "SGLang takes the base for 65536 tokens at any length, also up to 32768", "sequence_length=65536"),
    (QWEN | DYNAMIC, "at 65536 tokens nothing is scaled: pairs rotate up to 3 times as fast", "keep to 32768 tokens"),
    ("published:phi-3-mini-128k", "use long_factor for short sequences too", "set that maximum to 4096"),
    (QWEN | yarn(8_192, truncate=False), "llama.cpp rounds the ends of the ramp, since", "GGUF"),
    (QWEN | yarn(8_192, attention_factor=1.0), "itself, since it does not read rope_scaling.att", "GGUF"),
    (DBRX, "transformers 5.24 does not read attn_config.rope_theta: pairs rotate up to", "rope_theta outside too"),
    ("published:kimi-k2", "has a ramp from 32 turns to 1", "GGUF"),
    (QWEN | {"model_type": "qwen2_vl"} | yarn(8_192, mrope_section=[16, 24, 24]), "makes the ramp for 4 times", "vLLM"),
]


@pytest.mark.parametrize(("config", "text", "meant"), FOUND)
def test_a_caution_says_what_is_given_and_what_was_meant(config, text, meant):
    read = ra.config.read(config)
    (one,) = (each for each in read.cautions if text in each.text)
    assert one.part == "text" and meant in one.meant and f"caution: {one}" in repr(read)
    assert list(read.cautions) == [each for explanation in read.explain() for each in explanation.cautions]


PLAIN = [
    *(QWEN | yarn(8_192), QWEN | {"rope_parameters": {"rope_type": "default"}}, {"model_type": "gptj", "head_dim": 64}),
    DBRX | {"rope_theta": 5e5},
    *("published:llama-3.1-8b", "published:deepseek-v3", "published:mistral-nemo", "published:gemma-4-e2b-it"),
]


@pytest.mark.parametrize("config", PLAIN)
def test_a_plain_config_has_no_caution(config):
    assert ra.config.read(config).cautions == ()


def test_a_caution_names_the_layers_if_it_is_not_about_all():
    read = ra.config.read(GEMMA | {"rope_theta": 1e6})
    (one,) = read.cautions
    assert (one.layer_type, [each.cautions for each in read.explain()]) == ("sliding_attention", [(one,), ()])


def test_all_kinds_and_groups_of_layers_get_their_cautions():
    kinds = {f"{kind}_attention": {"rope_type": "default"} for kind in ("full", "sliding", "chunked")}
    kinds["full_attention"]["rope_theta"] = 1e6
    llama = {"model_type": "llama", "head_dim": 64, "layer_types": [*kinds], "rope_parameters": kinds}
    read = ra.config.read(llama | {"num_hidden_layers": 3})
    about_base = [[each for each in one.cautions if "gives no" in each.text] for one in read.explain()]
    assert [len(each) for each in about_base] == [0, 1, 1]
    molmo = QWEN | yarn(32_768) | {"model_type": "molmo2_text", "num_hidden_layers": 3}
    first, last = (ra.config.read(molmo | {"rope_scaling_layers": layers}).cautions for layers in ([0], [1, 2]))
    assert first == last != ()


def test_audit_prints_the_cautions_about_values():
    torch = pytest.importorskip("torch")
    from rope_any.integrations.torch import audit

    report = audit(torch.nn.Module(), QWEN | yarn(131_072, truncate=False))
    assert len(report.cautions) == 1 and "is beyond" in str(report)


def test_the_table_of_other_readings_is_that_of_its_cases():
    pytest.importorskip("torch", reason="a case is run on torch")
    pytest.importorskip("transformers", minversion="5.24", reason="a case is transformers' own code")
    import engine_readings

    written = engine_readings.PAGE.read_text(encoding="utf-8")
    assert written == f"{engine_readings.table()}\n"  # else run it with --write
