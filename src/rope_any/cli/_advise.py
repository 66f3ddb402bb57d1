"""``rope-any advise``: show what a config implies for a longer context, and which parameters to try."""

import json
from typing import Annotated

from rope_any.cli._common import AsJson, echo_json, show, table, tokens_option
from rope_any.cli._configs import ConfigFile, Factor, LayerType, PairingOf, loaded, naming
from rope_any.config import Advice, Outlook
from rope_any.config import advise as advices
from rope_any.config._advise import PERPLEXITY


def advise(
    file: ConfigFile,
    *,
    length: Annotated[int, tokens_option(help="Ask for a context of this many tokens; 1K is 1024, 1M is 1024K.")],
    trained_length: Annotated[
        int | None, tokens_option(help="Give the length in training before any scaling.", show_default="the config's")
    ] = None,
    layer_type: LayerType = None,
    pairing: PairingOf = None,
    factor: Factor = None,
    as_json: AsJson = False,
) -> None:
    """
    Show what a longer context does to a rotation, and parameters to try.

    All of it follows from the numbers of the config: the pairs that never complete a turn in training, the base that
    papers ask for, and what each scheme does to wavelengths and scores. Only an experiment decides.
    """
    config = loaded(file)
    with naming(file):
        found = advices(
            config,
            length,
            trained_length=trained_length,
            layer_type=layer_type,
            pairing=pairing,
            factor=factor,
        )
    if as_json:
        echo_json([one._asdict() | {"schemes": {k: v._asdict() for k, v in one.schemes.items()}} for one in found])
        return
    for number, one in enumerate(found):
        if number:
            show("")
        _show(one)
    example = ", ".join(f"{name} {value}" for name, value in PERPLEXITY.items())
    show("\nNumbers alone decide nothing: train at this length, or at least test there.")
    show(f"Perplexity of a small model at 8 times its length: {example}")
    show("(tools/perplexity.py; docs/perplexity.md)")


def _row(name: str, outlook: Outlook) -> tuple[str, ...]:
    """Return a table row: name, factor, two wavelengths, slowed pairs, unseen pairs, attention factor, score."""
    numbers = outlook.factor, *outlook.wavelengths, outlook.slowed, outlook.unseen, outlook.attention_factor
    return (name, *(f"{number:.4g}" for number in numbers), f"{outlook.score:.2f}")


def _show(advice: Advice) -> None:
    """Print the advice for one rotation."""
    trained, source = advice.trained_length
    show(f"{advice.layer_type or 'all layers'}: from {trained:.0f} tokens ({source}) to {advice.length}", bold=True)
    if not advice.schemes or advice.in_window:
        show(advice.reason)
        return
    if advice.extended_length is not None:
        extended = advice.extended_length
        show(f"the scaling of the config is for {extended.value:.0f} tokens ({extended.source})")
    unfinished = f"{advice.unfinished} of {advice.pairs} pairs"
    show(f"without scaling, {unfinished} never complete a turn within {trained:.0f} tokens")
    show(f"critical dimension: {advice.critical_dimension} of {2 * advice.pairs} features")
    asked = ", ".join(f"{base:.3g} ({paper})" for paper, base in advice.bases.items())
    show(f"base: {advice.base:.6g}; to train at {advice.length} tokens, papers ask for at least")
    show(f"  {asked}")
    heads = "scheme", "factor", "shortest", "longest", "slowed", "new angles", "attention", "score"
    show(table(*heads, rows=(_row(name, outlook) for name, outlook in advice.schemes.items())))
    show("shortest, longest: wavelengths in tokens")
    show("slowed: pairs that are slower than without scaling")
    show(f"new angles: pairs at angles that {trained:.0f} tokens without scaling don't have")
    show("attention: the attention factor, which multiplies cosine and sine")
    show(f"score: mean cosine over pairs, {advice.length // 2} to {advice.length} tokens apart")
    show(f"  in training {advice.score:.2f}, {trained / 2:.0f} to {trained:.0f} tokens apart")
    if advice.rope_parameters is None:
        show(f"nothing to try: {advice.reason}")
        return
    show(f"to try: {advice.reason}")
    show(f'"rope_parameters": {json.dumps(advice.rope_parameters, indent=2)},')
    show(f'"max_position_embeddings": {advice.length}')
    show("(for transformers 5; transformers 4 ignores rope_parameters, and reads rope_scaling and rope_theta)")
    if advice.code is not None:
        show(advice.code)
