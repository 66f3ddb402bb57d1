"""``rope-any export``: write the rotation of a model as an ONNX model."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from rope_any import _files
from rope_any.cli._common import AsJson, echo_json, require_suffix, status, tokens_option
from rope_any.cli._configs import ConfigFile, Factor, Length, OneLayerType, PairingOf, PartOf, explained, only


def export(
    file: ConfigFile,
    output: Annotated[Path, typer.Argument(metavar="OUT", help="The .onnx file to write.")],
    *,
    part: PartOf = None,
    layer_type: OneLayerType = None,
    sequence_length: Length = None,
    pairing: PairingOf = None,
    factor: Factor = None,
    dtype: Annotated[
        Literal["float32", "float16", "bfloat16"], typer.Option(help="Choose the dtype of queries and keys.")
    ] = "float32",
    operator_length: Annotated[
        int | None,
        tokens_option(help="Use the operator RotaryEmbedding, with a table for this many tokens.", show_default=False),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file that exists.")] = False,
    as_json: AsJson = False,
) -> None:
    """
    Write the rotation of a model as an ONNX model.

    The ONNX model takes q, k and positions, and returns q and k, rotated. The command needs the extra onnx.
    """
    from rope_any import onnx  # needs NumPy, which --help does not

    require_suffix(output, ".onnx")
    which: dict[str, Any] = {"part": part, "layer_type": layer_type, "factor": factor}
    explanations = explained(file, sequence_length=sequence_length, pairing=pairing, **which)
    rope, head_dim = only(file, explanations)
    _files.require_replaceable([output], overwrite=overwrite)
    with status(f"exporting {file}"):
        model = onnx.export(rope, head_dim=head_dim, dtype=dtype, operator_length=operator_length)
        with _files.replace_together([output], overwrite=overwrite) as (unfinished,):
            unfinished.write_bytes(model.SerializeToString())
    shapes = {
        value.name: [axis.dim_param or axis.dim_value for axis in value.type.tensor_type.shape.dim]
        for value in (*model.graph.input, *model.graph.output)
    }
    opset = model.opset_import[0].version
    if as_json:
        echo_json({"file": str(output), "opset": opset, "dtype": dtype, "shapes": shapes})
        return
    for name, shape in shapes.items():
        typer.echo(f"{name}: ({', '.join(map(str, shape))})")
    typer.echo(f"{output}: {rope}, {dtype}, opset {opset}")
