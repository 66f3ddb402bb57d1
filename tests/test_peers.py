"""
Small random models of transformers, whose rotary embedding is replaced by rope_any.

Llama has half pairing and grouped queries, GPT-NeoX rotates the first quarter of each head, GPT-J has interleaved
pairs. Each must give the same logits for a text as before. The replaced functions are also compared directly.
"""

import codecs
import io
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

import pytest

REASON = "the peers are models of transformers (5 or later), which run on torch"
torch = pytest.importorskip("torch", reason=REASON)
transformers = pytest.importorskip("transformers", minversion="5", reason=REASON)
llama = pytest.importorskip("transformers.models.llama.modeling_llama", reason=REASON)
gpt_neox = pytest.importorskip("transformers.models.gpt_neox.modeling_gpt_neox", reason=REASON)
gptj = pytest.importorskip("transformers.models.gptj.modeling_gptj", reason=REASON)

from test_replace import CACHE  # noqa: E402  # it imports torch

from rope_any import Rope, Table, frequencies  # noqa: E402

LAYERS = 2
# Weights ten times the usual size: rotations have almost no effect on attention that is almost uniform.
SMALL = {"vocab_size": 256, "bos_token_id": None, "eos_token_id": None, "initializer_range": 0.2}
OF_LLAMA = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": LAYERS}
OF_LLAMA |= {"num_attention_heads": 4, "num_key_value_heads": 2}
OF_LLAMA |= {"rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0}}
QUARTER = {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 0.25}
OF_NEOX = {"hidden_size": 96, "intermediate_size": 128, "num_hidden_layers": LAYERS, "num_attention_heads": 3}
OF_NEOX |= {"rope_parameters": QUARTER}
OF_GPTJ = {"n_embd": 64, "n_layer": LAYERS, "n_head": 4, "n_positions": 1024, "rotary_dim": 8}
GPTJ_LAYERS_HAVE_TABLES = hasattr(gptj.GPTJAttention, "_get_embed_positions")
"""Whether each layer of GPT-J has a table, as before transformers 5.24."""
TABLES = LAYERS if GPTJ_LAYERS_HAVE_TABLES else 1
# GPT-NeoX rotates 8 of the 32 features of a head, GPT-J 8 of 16; each layer of GPT-J rotates q and k in two calls.
PEERS = {
    "Llama": (llama, OF_LLAMA, Rope(frequencies(16, base=5e5), pairing="half"), Counter(table=1, rotation=LAYERS)),
    "GPTNeoX": (gpt_neox, OF_NEOX, Rope(frequencies(8), pairing="half"), Counter(table=1, rotation=LAYERS)),
    "GPTJ": (gptj, OF_GPTJ, Rope(frequencies(8), pairing="interleaved"), Counter(table=TABLES, rotation=2 * LAYERS)),
}


def text(rows, tokens):
    """Return bytes of the Zen of Python, (rows, tokens)."""
    with redirect_stdout(io.StringIO()):
        this = import_module("this")
    zen = codecs.decode(this.s, "rot13").encode()
    return torch.tensor(list(zen[: rows * tokens])).reshape(rows, tokens)


pytestmark = pytest.mark.usefixtures("one_thread")


# --- models, and replacements of their rotary embedding ---------------------------------------------------------


class Peer(NamedTuple):
    """A model, its rotation, and a function that replaces it by a `Rope`."""

    model: Any
    module: Any
    """The module of transformers."""
    rope: Rope
    replace: Callable[[pytest.MonkeyPatch, Rope], Counter]
    calls: Counter
    """How many tables a forward pass makes, and how many rotations."""


@pytest.fixture(scope="module", params=PEERS)
def peer(request):
    """Return each model."""
    return make_peer(request.param)


def make_peer(name):
    """Return a random model of transformers with its rotation; torch's generator stays as it is."""
    module, keys, rope, calls = PEERS[name]
    embedding = getattr(module, f"{name}RotaryEmbedding", None)
    patch = replace_in_gptj if module is gptj else partial(replace_table_and_rotation, module, embedding)
    config = getattr(transformers, f"{name}Config")(**SMALL, **keys)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Peer(getattr(transformers, f"{name}ForCausalLM")(config).eval(), module, rope, patch, calls)


def replace_table_and_rotation(module, embedding, monkeypatch, rope):
    """Make the embedding return a `Table`, and the layers rotate by the `Rope` with it; return the counts of calls."""
    calls = Counter()

    def forward(_self, x, position_ids):
        """Return our table in place of the rotary module's."""
        calls["table"] += 1
        return rope.table(position_ids, like=x)

    def apply_rotary_pos_emb(q, k, cos, sin):
        """Return q and k, rotated by our Rope."""
        calls["rotation"] += 1
        return rope(q, k, Table(cos, sin))

    monkeypatch.setattr(embedding, "forward", forward)
    monkeypatch.setattr(module, "apply_rotary_pos_emb", apply_rotary_pos_emb)
    return calls


def replace_in_gptj(monkeypatch, rope):
    """Give GPT-J a table in its layout, sines first; return the counts of calls."""
    calls = Counter()
    cos, sin = rope.table(torch.arange(1024))
    table = torch.cat([sin, cos], dim=-1)

    def forward(_self, _x, position_ids):
        """Return our rows of sines and cosines."""
        calls["table"] += 1
        return table[position_ids].chunk(2, dim=-1)

    def all_positions(_self, position_ids):
        """Return our table of all positions, as GPT-J keeps it."""
        calls["table"] += 1
        return table.expand(len(position_ids), -1, -1)

    def apply_rotary_pos_emb(tensor, sin, cos):  # of shape (batch, seq, heads, rotary_dim)
        """Return a tensor rotated by our Rope."""
        calls["rotation"] += 1
        return rope.apply(tensor, Table(cos, sin), seq_axis=1)

    if GPTJ_LAYERS_HAVE_TABLES:
        monkeypatch.setattr(gptj.GPTJAttention, "_get_embed_positions", all_positions)
    else:
        monkeypatch.setattr(gptj.GPTJRotaryEmbedding, "forward", forward)
    monkeypatch.setattr(gptj, "apply_rotary_pos_emb", apply_rotary_pos_emb)
    return calls


# --- the same logits -------------------------------------------------------------------------------------

# The peers' float32 angles are off by some 2e-5 at position 300, which after two layers is 4e-5 in logits of up
# to 8; float32 rounding adds 1e-5. A wrong rotation is off by more than 2.
LOGITS = {"rtol": 0, "atol": 2e-4}


def prefill(model, tokens, positions=None):
    """Return the logits of all tokens at once."""
    with torch.no_grad():
        mask = torch.ones_like(tokens)  # otherwise positions with gaps count as several texts
        return model(tokens, attention_mask=mask, position_ids=positions).logits


def token_by_token(model, tokens):
    """Return the logits of one token after the other, with earlier tokens in the cache."""
    cache, logits = None, []
    with torch.no_grad():
        for token in tokens.split(1, dim=1):
            output = model(token, **{CACHE: cache}, use_cache=True)
            cache = output[CACHE]
            logits.append(output.logits)
    return torch.cat(logits, dim=1)


def test_prefill_logits_equal_those_of_the_peer(peer, monkeypatch):
    tokens = text(2, 300)
    expected = prefill(peer.model, tokens)
    calls = peer.replace(monkeypatch, peer.rope)
    torch.testing.assert_close(prefill(peer.model, tokens), expected, **LOGITS)
    assert calls == peer.calls  # our rotation was used


def test_decoding_logits_equal_those_of_the_peer(peer, monkeypatch):
    """Keys are rotated once, when they enter the cache; the logits are compared with the peer's prefill."""
    tokens = text(2, 300)
    expected = prefill(peer.model, tokens)
    calls = peer.replace(monkeypatch, peer.rope)
    torch.testing.assert_close(token_by_token(peer.model, tokens), expected, **LOGITS)
    assert calls == Counter({name: 300 * n for name, n in peer.calls.items()})


def test_logits_with_positions_by_row_equal_those_of_the_peer(peer, monkeypatch):
    """The positions of one row begin at 500, those of the other have gaps."""
    tokens = text(2, 200)
    positions = torch.stack([torch.arange(500, 700), 3 * torch.arange(200) + 7])
    expected = prefill(peer.model, tokens, positions)
    calls = peer.replace(monkeypatch, peer.rope)
    # At 700 the peers' angles are less exact: Llama's logits differ by 2.4e-4 (ours differ from float64 by 2e-5).
    torch.testing.assert_close(prefill(peer.model, tokens, positions), expected, rtol=0, atol=1e-3)
    assert calls == peer.calls
    assert (prefill(peer.model, tokens) - expected)[1].abs().max() > 1  # the gaps matter


def test_a_wrong_rotation_changes_the_logits(peer, monkeypatch):
    """A wrong rotation changes the compared logits by thousands of their tolerances."""
    tokens, right = text(2, 300), peer.rope
    expected = prefill(peer.model, tokens)
    slower = replace(right, frequencies=tuple(0.9 * f for f in right.frequencies))
    for wrong in (replace(right, pairing="interleaved" if right.pairing == "half" else "half"), slower):
        peer.replace(monkeypatch, wrong)
        assert (prefill(peer.model, tokens) - expected).abs().max() > 1


def test_logits_at_position_a_million_are_right_with_ours_and_wrong_with_the_peer(monkeypatch):
    """The logits of a Llama depend only on distances, so they must not change when all positions move."""
    peer, tokens = make_peer("Llama"), text(2, 200)
    far = torch.arange(1_000_000, 1_000_200).repeat(2, 1)
    theirs_near, theirs_far = prefill(peer.model, tokens), prefill(peer.model, tokens, far)
    peer.replace(monkeypatch, peer.rope)
    torch.testing.assert_close(prefill(peer.model, tokens, far), theirs_near, **LOGITS)
    assert (theirs_far - theirs_near).abs().max() > 0.1


# --- the same functions ----------------------------------------------------------------------------------


def random(*shape, seed):
    """Return random numbers with a seed."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def scores(q, k):
    """Return attention scores of (batch, heads, seq, features), queries grouped over the heads of keys."""
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    return q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5


def tables_of_peer(peer, positions):
    """Return the peer's own cosines and sines of positions."""
    if peer.module is gptj:
        return gptj.create_sinusoidal_positions(4096, 8)[positions].chunk(2, dim=-1)[::-1]
    return peer.model.base_model.rotary_emb(torch.zeros(1), positions)


def rotate_by_peer(peer, q, k, cos, sin):
    """Rotate q and k by the peer's function; GPT-J's takes heads after seq, and the rotary slice."""
    if peer.module is not gptj:
        return peer.module.apply_rotary_pos_emb(q, k, cos, sin)
    slices = (gptj.apply_rotary_pos_emb(x[..., :8].transpose(1, 2), sin, cos).transpose(1, 2) for x in (q, k))
    return tuple(torch.cat([part, x[..., 8:]], dim=-1) for part, x in zip(slices, (q, k), strict=True))


def test_rope_equals_the_peers_function(peer):
    """
    With our table, the peer agrees to float32's last digits at any position.

    The p x f of its own is off by some units in the last place of float32, up to p x 2⁻²² radians. Ours is exact, so
    the difference is the peer's error, which grows with the position.
    """
    rope, config = peer.rope, peer.model.config
    positions = torch.randint(0, 4096, (2, 64), generator=torch.Generator().manual_seed(2))
    features = config.hidden_size // config.num_attention_heads
    q, k = random(2, 8, 64, features, seed=0), random(2, 2, 64, features, seed=1)
    table = rope.table(positions, like=q)
    wide = table if peer.module is gptj else Table(*(torch.cat([part, part], dim=-1) for part in table))
    torch.testing.assert_close(rope(q, k, table), rotate_by_peer(peer, q, k, *wide), rtol=0, atol=1e-6)
    ours, theirs = rope(q, k, positions), rotate_by_peer(peer, q, k, *tables_of_peer(peer, positions))
    angle_error = positions[:, None, :, None] * 2.0**-22 + 1e-6
    for x, our, their in zip((q, k), ours, theirs, strict=True):
        assert ((our - their).abs() <= angle_error * x.abs().max()).all()
    # A score sums such errors of both, with random signs; the scores are about 1.
    torch.testing.assert_close(scores(*ours), scores(*theirs), rtol=0, atol=1e-3)
