"""
Print the forms of configs and the keys that identify them, as a table: `forms_table.md`. `explain` reads each example.

    python tools/forms.py                                  # prints the table
    python tools/forms.py --write                          # and writes forms_table.md
"""

from typing import Any, NamedTuple

import making

from rope_any.config import explain

PAGE = making.DOCS / "forms_table.md"


class Form(NamedTuple):
    """A form of configs: its name, an example, and extra keys, each of which identifies the form."""

    name: str
    example: dict[str, Any]
    keys: dict[str, Any]


_PARAMS = {"dim": 4096, "n_layers": 32, "n_heads": 32, "vocab_size": 32_000, "norm_eps": 1e-5}
_YARN = {"beta": 32, "alpha": 1, "factor": 4, "original_max_position_embeddings": 4096}
FORMS = (
    Form(
        "`config.json` of transformers 5",
        {"head_dim": 64, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}},
        {"model_type": "llama"},
    ),
    Form("`config.json` of older transformers", {"head_dim": 64, "rope_theta": 5e5}, {"model_type": "llama"}),
    Form(
        "`config.json` of a transformer of diffusers",
        {"axes_dims_rope": [16, 56, 56]},
        {"_class_name": "FluxTransformer2DModel"},
    ),
    Form(
        "`params.json` of Mistral",
        _PARAMS | {"head_dim": 128, "rope_theta": 1e6},
        {"hidden_dim": 14_336, "yarn": _YARN, "moe": {}},
    ),
    Form(
        "`params.json` of Meta",
        _PARAMS | {"rope_theta": 5e5},
        {"multiple_of": 1024, "ffn_dim_multiplier": 1.3, "use_scaled_rope": False},
    ),
    Form(
        "`inference/configs/*.json` of DeepSeek, V2 to V3.2",
        _PARAMS | {"qk_rope_head_dim": 64},
        {"inter_dim": 18_432, "moe_inter_dim": 2048, "n_routed_experts": 256},
    ),
    Form(
        "metadata of a GGUF file, as a dict",
        {"llama.attention.key_length": 128, "llama.rope.freq_base": 1e6},
        {"general.architecture": "llama"},
    ),
    Form("`genai_config.json` of ONNX Runtime", {}, {"model": {"decoder": {"filename": "model.onnx"}}}),
)


def read(config: dict[str, Any]) -> tuple[str, str]:
    """Return (pairing, model) of a config, or ("refused", reason)."""
    try:
        (explanation,) = explain(config)
    except ValueError as error:
        return "refused", str(error)
    if explanation.rope is None:
        return "no rotary", ""
    model = explanation.facts["model_type"].value if "model_type" in explanation.facts else config["_class_name"]
    return explanation.rope.pairing, f"`{model}`"


def table() -> str:
    """Return the table of forms in Markdown."""
    rows = []
    for form in FORMS:
        key = next(iter(form.keys))
        pairing, model = read(form.example | {key: form.keys[key]})
        names = ", ".join(f"`{key}`" for key in form.keys)
        rows.append(f"| {form.name} | {names} | {pairing} ({model}) |")
    return "\n".join(
        [
            "<!-- written by tools/forms.py; run it again rather than edit this file -->",
            "",
            "| form | recognised by its key | pairing, for example |",
            "| --- | --- | --- |",
            *rows,
        ]
    )


if __name__ == "__main__":
    given = making.parser(__doc__, PAGE).parse_args()
    making.show(table(), PAGE, write=given.write)
