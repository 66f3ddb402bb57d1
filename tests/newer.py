"""Model types that only transformers 5.24 and later have. Their tests are skipped with 5.23."""

from importlib.metadata import version

import pytest

_NAMES = """
    apertus1p5_text apertus1p5_vision_tokenizer dory exaone hy_v4_vl_text hy_v4_vl_vision inkling2_loop lara_mini
    omniasr_audio sarvam_mla sarvam_moe wavtokenizer_encoder
"""
FROM_5_24 = frozenset(_NAMES.split())


def is_absent(model_type):
    """Whether the installed transformers is too old for a model type."""
    return model_type in FROM_5_24 and tuple(map(int, version("transformers").split(".")[:2])) < (5, 24)


def skip_if_absent(model_type):
    """Skip a test if the installed transformers is too old for its model type."""
    if is_absent(model_type):
        pytest.skip(f"{model_type} came with transformers 5.24")
