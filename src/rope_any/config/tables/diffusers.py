"""
The rotations of transformers of diffusers, by class: read in diffusers 0.42.1 and compared with its code.

Fields are explained in `GridModel`, the functions that rows name are in `grid_rules`. To add a class, copy the most
similar row, change what differs, and add the class to `CASES` in tests/test_diffusers.py, which runs the class's own
code. If no `Rope` can express it, write the reason in `REFUSED`.
"""

from collections.abc import Mapping
from functools import partial

from rope_any.config.tables import grid_rules as rules
from rope_any.config.tables.rows import GridModel, Needed, by_name
from rope_any.config.tables.values import Value, value

# --- what several rows share ------------------------------------------------------------------------------

_LINE, _PLANE = ("index",), ("row", "column")
_VISUAL = "visual tokens; those of text are not rotated"
_BY_PIPELINE = "all tokens, at the positions that the pipeline gives"
_IN_ORDER = "self-attention, at 0, 1, 2, … in order"
_SELF_ATTENTION = "self-attention; keys of text in cross-attention are not rotated"

_FLUX = GridModel(
    sizes=value("axes_dims_rope", default=(16, 56, 56)),
    covers="all tokens; those of text are at 0 on all axes",
    layers=("num_layers", "num_single_layers"),
    grid=rules.from_zero,
    frames=False,
)
_FLUX2 = _FLUX._replace(
    sizes=value("axes_dims_rope", default=(32, 32, 32, 32)),
    covers="all tokens; those of text are at (0, 0, 0, index), reference images at their own times",
    base=value("rope_theta", default=2000),
    axes=("time", "row", "column", "index"),
)
_QWEN_IMAGE = _FLUX._replace(
    covers=(
        "all tokens; those of text follow the largest row or column, one position after the other, the same on all axes"
    ),
    layers=("num_layers",),
    grid=partial(rules.centred, layered=value("use_layer3d_rope", default=False, null=False)),
    frames=None,
)
_QWEN_CONTROL = _QWEN_IMAGE._replace(grid=rules.centred)
_HUNYUAN_VIDEO = _FLUX._replace(
    sizes=value("rope_axes_dim", default=(16, 56, 56)),
    covers=_VISUAL,
    base=value("rope_theta", default=256.0),
    frames=None,
)
_HUNYUAN_DIT = GridModel(
    sizes=rules.halves,
    covers="self-attention of image tokens; keys of text in cross-attention are not rotated",
    head=(value("attention_head_dim", default=88),),
    columns_first=True,
    axes=_PLANE,
    grid=partial(rules.cropped, patch=value("patch_size"), sides=(64, 64)),
)
_WAN = GridModel(sizes=rules.sixths, covers=_SELF_ATTENTION, grid=rules.from_zero, unread=("rope_max_seq_len",))
_OWN_WAN = _WAN._replace(head=(value("dim", default=2048), value("num_heads", default=16)), unread=())
_LONGCAT_VIDEO = _WAN._replace(
    head=(value("hidden_size", default=4096), value("num_heads", default=32)), layers=("depth",), unread=()
)
_COGVIDEOX = GridModel(
    sizes=rules.quarters,
    covers=_VISUAL,
    head=(value("attention_head_dim", default=64),),
    grid=partial(
        rules.cropped,
        patch=value("patch_size", default=2),
        sides=(value("sample_height", default=60), value("sample_width", default=90)),
    ),
    needs=(
        Needed(value("use_rotary_positional_embeddings", default=False), "the class adds absolute positions instead"),
    ),
    unread=("use_learned_positional_embeddings",),
)
_GLM_IMAGE = GridModel(
    sizes=rules.halves,
    covers=_VISUAL,
    head=(value("attention_head_dim", default=40),),
    pairing="half",
    axes=_PLANE,
    grid=rules.from_zero,
)
_COSMOS = GridModel(
    sizes=rules.sixths,
    covers="self-attention, at frames of 24 per second: for another fps the model takes frames at index · 24 / fps",
    pairing="half",
    frequencies=partial(rules.runs, stretch=(value("rope_scale", default=(2.0, 1.0, 1.0)),)),
    grid=rules.from_zero,
)
_IDEOGRAM4 = GridModel(
    sizes=value("mrope_section", default=(24, 20, 20)),
    covers=_BY_PIPELINE,
    head=(value("attention_head_dim", default=256),),
    base=value("rope_theta", default=5_000_000),
    pairing="half",
    frequencies=rules.strided,
)
_SCALE_FACTOR = value(
    "scale_factor",
    hint=(
        "(its pipelines choose: [1, 1, 1] for images, [1, 2, 2] for videos of 480 to 854 pixels, else [1, 3.16, 3.16])"
    ),
)
_SCALED = partial(rules.runs, divisors=(value("scale_factor", default=(1.0, 2.0, 2.0)),))
_KANDINSKY5 = GridModel(
    sizes=value("axes_dims", default=(16, 24, 24)),
    covers="visual tokens; text has its own 1-D rotation",
    head=(),
    layers=("num_visual_blocks",),
    frequencies=partial(rules.runs, divisors=(_SCALE_FACTOR,)),
    grid=rules.from_zero,
)
_JOY = GridModel(
    sizes=value("rope_dim_list", default=(16, 56, 56), null=rules.thirds),
    covers=(
        "visual tokens; those of text are rotated only if rope_type is mrope: they follow the largest visual position, "
        "one position after the other, the same on all axes"
    ),
    head=(value("hidden_size", default=3072), value("num_attention_heads", default=24)),
    base=value("theta", default=256),
    grid=rules.from_zero,
    unread=("rope_type",),
)
_LTX = GridModel(
    covers=(
        "self-attention, all heads side by side (batch, seq, heads · head_dim), at 2c − 1 on each axis, where c is the "
        "coordinate over 20 frames, 2048 rows and 2048 columns, which depends on the frame rate"
    ),
    head=(value("num_attention_heads", default=32), value("attention_head_dim", default=64)),
    frequencies=rules.over_all_heads,
    width=rules.all_heads,
)
_Z_IMAGE = GridModel(
    sizes=value("axes_dims", default=(32, 48, 48)),
    covers="all tokens; text is at (index + 1, 0, 0), the image at (padded text length + 1, row, column)",
    head=(value("dim", default=3840), value("n_heads", default=30)),
    base=value("rope_theta", default=256.0),
    layers=("n_layers",),
    unread=("axes_lens",),
)
_LAYOUT, _ACROSS = value("rope_type", default="interleaved"), value("audio_cross_attention_dim", default=2048)
_LTX2 = _LTX._replace(
    covers=(
        "self-attention of video tokens, all heads side by side (batch, seq, heads · head_dim), at 2c − 1 on each "
        "axis, where c is the middle of a patch in seconds and pixels over pos_embed_max_pos, base_height and "
        "base_width; audio tokens and the attention between both have their own rotations"
    ),
    head=(value("num_attention_heads", default=32), value("attention_head_dim", default=128)),
    base=value("rope_theta", default=10_000.0),
    frequencies=partial(rules.over_all_heads, layout=_LAYOUT),
    unread=("rope_double_precision",),
)
_LTX2_AUDIO = _LTX2._replace(
    covers=(
        "self-attention of audio tokens, all heads side by side (batch, seq, heads · head_dim), at 2c − 1, where c is "
        "the middle of a token in seconds over audio_pos_embed_max_pos"
    ),
    head=(value("audio_num_attention_heads", default=32), value("audio_attention_head_dim", default=64)),
    axes=_LINE,
)
_LTX2_CROSS = _LTX2_AUDIO._replace(
    covers=(
        "attention between video and audio tokens, all heads side by side (batch, seq, heads · head_dim), at 2c − 1, "
        "where c is the middle of a token in seconds over the larger of pos_embed_max_pos and audio_pos_embed_max_pos"
    ),
    frequencies=partial(rules.over_all_heads, layout=_LAYOUT, across=_ACROSS),
)
# LTX-Video in the keys of its own code: Lightricks/LTX-Video 5260738, ltx_video/models/transformers/transformer3d.py.
_OWN_ROPE = Needed(value("positional_embedding_type", default="rope"), "the class has no rotary then", "rope")
_OWN_LTX = _LTX._replace(
    covers=(
        "self-attention, all heads side by side (batch, seq, heads · head_dim), at 2c − 1 on each axis, where c is the "
        "first time, row and column of a patch, in seconds and pixels, over positional_embedding_max_pos"
    ),
    base=value("positional_embedding_theta"),
    needs=(_OWN_ROPE,),
)
# LTX-2 in the keys of its own code: Lightricks/LTX-2 400fd31, ltx_core/model/transformer/model_configurator.py.
_OWN_NEEDS = (
    _OWN_ROPE,
    Needed(value("use_middle_indices_grid", default=True), "the class takes no other value"),
)
_OWN_LAYOUT, _OWN_BASE = value("rope_type", default="split"), value("positional_embedding_theta", default=10_000.0)


def _own(row: GridModel, across: Value | None = None) -> GridModel:
    """Return a row of LTX-2 with the keys of its own code."""
    layout = partial(rules.over_all_heads, layout=_OWN_LAYOUT, across=across)
    covers = row.covers.replace("pos_embed", "positional_embedding")
    return row._replace(base=_OWN_BASE, frequencies=layout, covers=covers, needs=_OWN_NEEDS, unread=())


_KANDINSKY5_TEXT = GridModel(
    covers="text tokens, before the visual ones attend to them, at 0, 1, 2, … in order",
    head=(value("axes_dims", default=(16, 24, 24)),),
    frequencies=rules.sequence,
    width=rules.first_list,
    axes=_LINE,
    layers=("num_text_blocks",),
    unread=("scale_factor",),
)
_KANDINSKY6_TEXT = _KANDINSKY5_TEXT._replace(
    head=(value("axes_dims", default=(32, 48, 48)),),
    unread=("axes_dims_a", "ca_rope", "audio_freqs_scaling", "scale_factor"),
)
_KANDINSKY6_AUDIO_TEXT = _KANDINSKY6_TEXT._replace(
    head=(value("axes_dims_a"), value("axes_dims", default=(32, 48, 48))),
    covers="text tokens, before the audio ones attend to them, at 0, 1, 2, … in order",
)
_KANDINSKY6_AUDIO = _KANDINSKY6_AUDIO_TEXT._replace(
    covers="audio tokens, and with ca_rope the attention between them and visual ones, at 0, 1, 2, … in order",
    frequencies=partial(rules.sequence, scale=value("audio_freqs_scaling", default=1.0)),
    layers=("num_visual_blocks",),
    unread=("ca_rope", "scale_factor"),
)
_STABLE_AUDIO = GridModel(
    sizes=rules.half, covers=_IN_ORDER, head=(value("attention_head_dim", default=64),), pairing="half", axes=_LINE
)

_CLASSES = {
    # --- Flux and similar classes: three axes, their sizes in one list in the config ------------------------
    "FluxTransformer2DModel FluxControlNetModel ChromaTransformer2DModel": _FLUX,
    # VeOmni d977449, modeling_flux.py: its axes and base are constants
    "FluxModel": _FLUX._replace(sizes=lambda _: (16, 56, 56)),
    # Flux' own code, whose files have no _class_name: black-forest-labs/flux 802fb47, src/flux/model.py
    "Flux": _FLUX._replace(
        sizes=value("axes_dim"),
        head=(value("hidden_size"), value("num_heads")),
        base=value("theta"),
        layers=("depth", "depth_single_blocks"),
    ),
    "OvisImageTransformer2DModel": _FLUX._replace(covers="all tokens; those of text are at (0, index, index)"),
    "LongCatImageTransformer2DModel": _FLUX._replace(covers=_BY_PIPELINE, grid=None),
    "BriaTransformer2DModel BriaFiboTransformer2DModel": _FLUX._replace(
        base=value("rope_theta", default=10_000), unread=("time_theta",)
    ),
    "BriaFibo2Transformer2DModel": _Z_IMAGE._replace(
        covers=(
            "all tokens; on the first axis all tokens of an image are at one position, after those of text and of "
            "earlier images"
        ),
        head=(value("dim", default=3584), value("n_heads", default=28)),
    ),
    "Flux2Transformer2DModel": _FLUX2,
    "Flux3Transformer2DModel": _FLUX2._replace(
        covers=_BY_PIPELINE, base=value("rope_theta", default=10_000), grid=None
    ),
    "QwenImageTransformer2DModel": _QWEN_IMAGE,
    "QwenImageControlNetModel NucleusMoEImageTransformer2DModel": _QWEN_CONTROL,
    "QwenImage21Transformer2DModel": _QWEN_CONTROL._replace(
        covers=(
            "all tokens; on the first axis an image is at the number of text tokens before it plus the longer sides of "
            "earlier images; rows and columns are counted from its middle; text after it is at that number plus the "
            "longer side of the image, then one position after the other, the same on all axes"
        ),
        grid=None,
    ),
    # pyramid-flow, pyramid_dit/flux_modules/modeling_pyramid_flux.py
    "PyramidFluxTransformer": _FLUX._replace(
        sizes=value("axes_dims_rope", default=(16, 24, 24)),
        head=(value("attention_head_dim", default=64),),
        covers="all tokens; those of text are at 0 on all axes, images of each resolution at positions of the largest",
        grid=None,
    ),
    "HiDreamImageTransformer2DModel": _FLUX._replace(sizes=value("axes_dims_rope", default=(32, 32))),
    # --- HunyuanVideo and HunyuanDiT ------------------------------------------------------------------------
    "HunyuanVideoTransformer3DModel MotifVideoTransformer3DModel": _HUNYUAN_VIDEO,
    "HunyuanVideo15Transformer3DModel": _HUNYUAN_VIDEO._replace(layers=("num_layers",)),
    "HunyuanVideoFramepackTransformer3DModel": _HUNYUAN_VIDEO._replace(
        covers="new frames, at the indices that the pipeline gives; tables of packed history are averaged", grid=None
    ),
    "HunyuanImageTransformer2DModel": _HUNYUAN_VIDEO._replace(
        sizes=value("rope_axes_dim", default=(64, 64)), may_lack_time=True
    ),
    "HunyuanDiT2DModel": _HUNYUAN_DIT,
    # its number of layers is transformer_num_layers / 2 − 1, which no key gives
    "HunyuanDiT2DControlNetModel": _HUNYUAN_DIT._replace(layers=()),
    # --- Wan and similar classes: a rule divides the head among the axes ------------------------------------
    """
    WanTransformer3DModel WanVACETransformer3DModel WanAnimateTransformer3DModel SkyReelsV2Transformer3DModel
    AnyFlowTransformer3DModel
    """: _WAN,
    "WanAnimate2Transformer3DModel": _WAN._replace(
        head=(value("dim", default=5120), value("num_heads", default=40)),
        covers="generated tokens; those of the reference have their own offsets",
        unread=(),
    ),
    "ChronoEditTransformer3DModel": _WAN._replace(
        sizes=rules.even_sixths,
        grid=partial(
            rules.skipping_frames,
            patch=value("patch_size", default=(1, 2, 2)),
            skip=value("rope_temporal_skip_len", default=8),
        ),
    ),
    # Wan's own code, whose keys are dim and num_heads: Wan-Video/Wan2.1 9737cba, wan/modules/model.py.
    "WanModel VaceWanModel CausalWanModel": _OWN_WAN,
    # meituan-longcat/LongCat-Video 6b3f4b8, longcat_video/modules
    "LongCatVideoTransformer3DModel": _LONGCAT_VIDEO,
    "LongCatVideoAvatarTransformer3DModel": _LONGCAT_VIDEO._replace(
        covers="self-attention; a reference has a time of its own, and attention to several speakers its own rotation",
        grid=None,
    ),
    "WanModel_S2V WanAnimateModel": _OWN_WAN._replace(
        covers="generated frames; those of references and of earlier motion have their own offsets", grid=None
    ),
    "AnyFlowFARTransformer3DModel": _WAN._replace(
        covers="full frames, counted from the first frame; tables of compressed frames are averaged", grid=None
    ),
    "SanaVideoTransformer3DModel": _WAN._replace(head=(value("attention_head_dim", default=112),)),
    "SanaWMTransformer3DModel": _WAN._replace(
        head=(value("linear_head_dim", default=112),),
        covers="the main branch; the camera branch rotates half of the head by the first pairs of each axis",
        needs=(
            Needed(value("use_pe", default=True), "the class makes no rotary embedding"),
            Needed(value("pos_embed_type", default="wan_rope"), "the class supports no other value", "wan_rope"),
        ),
        unread=(),
    ),
    # --- CogVideoX, CogView and others: the grid is fitted into a base grid ---------------------------------
    "ConsisIDTransformer3DModel CogVideoXTransformer3DModel": _COGVIDEOX,
    "EasyAnimateTransformer3DModel": _COGVIDEOX._replace(
        grid=partial(rules.cropped, patch=value("patch_size"), sides=(60, 90)), needs=(), unread=()
    ),
    "GlmImageTransformer2DModel": _GLM_IMAGE,
    "CogView4Transformer2DModel": _GLM_IMAGE._replace(
        grid=partial(rules.fitted, lengths=value("rope_axes_dim", default=(256, 256)))
    ),
    # --- other models of images and videos ------------------------------------------------------------------
    "AllegroTransformer3DModel": GridModel(
        sizes=rules.thirds,
        covers=_SELF_ATTENTION,
        head=(value("attention_head_dim", default=96),),
        pairing="half",
        blocks=3,
        frequencies=partial(
            rules.runs,
            divisors=(
                value("interpolation_scale_t", default=2.2),
                value("interpolation_scale_h", default=2.0),
                value("interpolation_scale_w", default=2.0),
            ),
        ),
        grid=rules.from_zero,
    ),
    "CosmosTransformer3DModel": _COSMOS,
    "CosmosControlNetModel": _COSMOS._replace(layers=("n_controlnet_blocks",)),
    "Ideogram4Transformer2DModel": _IDEOGRAM4,
    "Cosmos3OmniTransformer": _IDEOGRAM4._replace(
        sizes=value("rope_axes_dim", "rope_scaling.mrope_section", default=(24, 20, 20)),
        head=(value("head_dim", default=128),),
        layers=("num_hidden_layers",),
        types=("default", "mrope"),
        needs=(Needed(value("rope_scaling.mrope_interleaved", default=True), "its axes take the pairs in turn"),),
        unread=("unified_3d_mrope_reset_spatial_ids", "unified_3d_mrope_temporal_modality_margin"),
    ),
    "Lumina2Transformer2DModel": GridModel(
        sizes=value("axes_dim_rope", default=(32, 32, 32)),
        covers="all tokens; text is at (index, 0, 0), the image at (number of text tokens, row, column)",
        head=(value("hidden_size", default=2304), value("num_attention_heads", default=24)),
        unread=("axes_lens",),
    ),
    "ZImageTransformer2DModel": _Z_IMAGE,
    "Krea2Transformer2DModel": _FLUX._replace(
        sizes=value("axes_dims_rope", default=(32, 48, 48)),
        base=value("rope_theta", default=1_000.0),
        layers=("num_layers",),
    ),
    "Kandinsky5Transformer3DModel": _KANDINSKY5._replace(further={"text": _KANDINSKY5_TEXT}),
    "Kandinsky6Transformer3DModel": _KANDINSKY5._replace(
        sizes=value("axes_dims", default=(32, 48, 48)),
        covers="visual tokens; text and audio have their own 1-D rotations",
        frequencies=_SCALED,
        unread=("axes_dims_a", "ca_rope", "audio_freqs_scaling"),
        further={"text": _KANDINSKY6_TEXT, "audio_text": _KANDINSKY6_AUDIO_TEXT, "audio": _KANDINSKY6_AUDIO},
    ),
    "Kandinsky6SRTransformer3DModel": _KANDINSKY5._replace(covers="all tokens", frequencies=_SCALED),
    "OmniGenTransformer2DModel": GridModel(
        covers="all tokens, at the position ids that the pipeline gives",
        head=(value("hidden_size", default=3072), value("num_attention_heads", default=32)),
        base=value("rope_base", default=10_000),
        pairing="half",
        frequencies=partial(
            rules.longrope,
            short=value("rope_scaling.short_factor"),
            long=value("rope_scaling.long_factor"),
            longest=value("max_position_embeddings", default=131_072),
            original=value("original_max_position_embeddings", default=4096),
        ),
        types=("su", "longrope"),
        axes=_LINE,
    ),
    "JoyImageEditTransformer3DModel": _JOY,
    "JoyImageEditPlusTransformer3DModel": _JOY._replace(
        covers="visual tokens; the frames of each image follow those of the one before, text is not rotated", grid=None
    ),
    "HeliosTransformer3DModel": GridModel(
        sizes=value("rope_dim", default=(44, 42, 42)),
        covers=(
            "self-attention of new and short-history frames, at the indices that the pipeline gives; tables of longer "
            "history are averaged"
        ),
        base=value("rope_theta", default=10_000.0),
    ),
    "MiniMaxH3Transformer3DModel": GridModel(
        sizes=value("rope_freq_dim", default=16),
        covers=_BY_PIPELINE,
        base=value("rope_theta", default=10_000.0),
        pairing="half",
        frequencies=rules.equal_runs,
    ),
    "PRXTransformer2DModel": GridModel(
        sizes=value("axes_dim", default=(32, 32), null=(32, 32)),
        covers=_VISUAL,
        head=(value("hidden_size", default=1792), value("num_heads", default=28)),
        base=value("theta", default=10_000),
        axes=_PLANE,
        layers=("depth",),
        grid=rules.from_zero,
    ),
    "LTXVideoTransformer3DModel": _LTX,
    "Transformer3DModel": _OWN_LTX,
    "LTX2VideoTransformer3DModel SanaWMLTX2RefinerTransformer3DModel": _LTX2._replace(
        further={"audio": _LTX2_AUDIO, "cross": _LTX2_CROSS}
    ),
    "LTXVideoTransformerModel AVTransformer3DModel": _own(_LTX2)._replace(
        further={"audio": _own(_LTX2_AUDIO), "cross": _own(_LTX2_CROSS, _ACROSS)}
    ),
    # --- sequences, mostly audio ----------------------------------------------------------------------------
    "AceStepTransformer1DModel": _STABLE_AUDIO._replace(
        sizes=rules.whole,
        head=(value("head_dim", default=128),),
        base=value("rope_theta", default=1_000_000.0),
        layers=("num_hidden_layers",),
    ),
    "StableAudioDiTModel": _STABLE_AUDIO,
    "StableAudio3DiTModel": _STABLE_AUDIO._replace(
        head=(value("embed_dim", default=1536), value("num_heads", default=24)), layers=("depth",)
    ),
    "LongCatAudioDiTTransformer": _STABLE_AUDIO._replace(
        sizes=rules.whole,
        head=(value("dit_dim", default=1536), value("dit_heads", default=24)),
        covers="audio and text tokens, each counted from 0, in self- and cross-attention",
        base=100_000.0,
        layers=("dit_depth",),
    ),
    "MiniMaxMusic3Transformer1DModel": _STABLE_AUDIO._replace(sizes=value("rotary_dim", default=32)),
    "AnimaTextConditioner": _STABLE_AUDIO._replace(
        sizes=rules.whole,
        head=(value("model_dim", default=1024), value("num_attention_heads", default=16)),
        covers="both sequences, at the positions of their ids",
    ),
}

CLASSES: Mapping[str, GridModel] = by_name(_CLASSES)
"""The classes whose rotation a `Rope` can express, by ``_class_name``."""

BY_KEYS: Mapping[str, frozenset[str]] = {
    "Flux": frozenset(("axes_dim", "theta", "hidden_size", "num_heads")),
    "WanModel": frozenset(("dim", "num_heads", "ffn_dim", "freq_dim", "text_len")),
}
"""The class of a file without ``_class_name``, by the keys that show it."""

REFUSED: Mapping[str, str] = {
    "MochiTransformer3DModel": (
        "its frequencies are learned (pos_frequencies in the weights, one set for each head): pass them to cos_sin, "
        "and the table to rotate"
    ),
    "ErnieImageTransformer2DModel": "it gives the two features of a pair different angles, which is no rotation",
    "LuminaNextDiT2DModel": "it scales positions before a time step and the base after it, both chosen by the pipeline",
    "ZImageControlNetModel": (
        "it has the rotation of the transformer that it is attached to: read the config of that one"
    ),
    "AutoencoderKLMiniMaxH3": "its decoder has rotary in an autoencoder, which is not read",
    "AutoencoderSAME": "it has rotary in an autoencoder, which is not read",
    "LTX2VideoDiffusionDecoderModel": "it has rotary in a decoder of latents, which is not read",
}
"""Classes whose rotary embedding no `Rope` can express or that is not read, with the reason."""

_UNROTATED = {
    """
    AuraFlowTransformer2DModel CogView3PlusTransformer2DModel ControlNetModel ControlNetUnionModel
    ControlNetXSAdapter DiTTransformer2DModel DreamLiteTransformer2DModel LatteTransformer3DModel
    MiniMaxMusic3RVQDepthDecoder PixArtTransformer2DModel PriorTransformer RFD4ProteinaTransformer
    SD3ControlNetModel SD3Transformer2DModel SanaControlNetModel SanaTransformer2DModel SparseControlNetModel
    T5FilmDecoder Transformer2DModel TransformerTemporalModel UNetControlNetXSModel
    """: "it has no rotary"
}

UNROTATED: Mapping[str, str] = by_name(_UNROTATED)
"""Transformers and control networks without rotary embedding, and what an error says of them."""
