"""Check the parameters of a rope type, and complete them by its defaults and by what can be derived."""

from typing import Any

from rope_any._checks import NOTHING, ArgumentTypeError, ArgumentValueError, brief, flag, positive
from rope_any._names import did_you_mean
from rope_any.config._layers import EXTENDED, OUTSIDE, rope_type_of, written_parameters
from rope_any.config._load import LARGEST_HEAD, Fact, Values
from rope_any.config._part import LENGTHS, Part
from rope_any.config._schemes import (
    BY_KEY,
    COMMON,
    IGNORED,
    KEYS,
    OF_FEW_MODELS,
    ORIGINAL,
    OTHERS,
    REQUIRED,
    SCHEMES,
    Scheme,
    unknown_name,
)
from rope_any.config.tables.words import CHANGES_ATTENTION


def complete_scheme(part: Part, v: Values, length: int | None) -> tuple[Scheme, list[str]]:
    """
    Check the parameters, set their defaults and any "length"; None means the trained length.

    Return the scheme of the rope type, and the names of parameters without effect, whose sources say so.
    """
    kind = rope_type_of(v)
    if kind not in SCHEMES:
        wanted, ours = f"be one of {', '.join(SCHEMES)}", OTHERS.get(kind.lower().replace("-", "_"))
        hint = f"write {ours}" if ours else did_you_mean(kind, SCHEMES)
        raise ArgumentValueError(v.sources["rope_type"], wanted, kind, hint)
    own = (BY_KEY[key] for key in part.model.parameters if kind == "dynamic" and key in BY_KEY and key in v)
    scheme = next(own, SCHEMES[kind])
    ignored = _ignored(part, v, scheme)
    for key, default in scheme.keys.items():
        _complete_value(part, v, key, default)
    if "factor" in scheme.keys and v["factor"] is None and not _may_lack_factor(v):
        if LENGTHS[0] not in v:
            raise ArgumentValueError(part.name(LENGTHS[0]), f"be given for rope type {kind!r} without a factor")
        extended = v.check(LENGTHS[0], positive)
        v.put("factor", extended / v[ORIGINAL], f"{v.sources[LENGTHS[0]]} / {v.sources[ORIGINAL]}")
    if scheme.trained:
        v.put("length", *(Fact(length, "sequence_length") if length else Fact(v[scheme.trained], "the trained length")))
    return scheme, ignored


def _may_lack_factor(v: Values) -> bool:
    """Whether ``factor`` may be missing: only in longrope, if the attention factor or both mscales are given."""
    given = {key for key, value in v.items() if value is not None}
    return v["rope_type"] == "longrope" and ("attention_factor" in given or {"short_mscale", "long_mscale"} <= given)


def _ignored(part: Part, v: Values, scheme: Scheme) -> list[str]:
    """Return the parameters without effect, with the reason in `sources`; raise for one the scheme or model lacks."""
    ignored = []
    for name, value in v.items():
        if name in OUTSIDE:
            continue
        key, source = LENGTHS[0] if name == EXTENDED else name.removeprefix("."), v.sources[name]
        if key in OF_FEW_MODELS and key not in part.model.parameters and value is not None:
            wanted = f"not be given for {part.model_type}, whose code does not read it: others {OF_FEW_MODELS[key]}"
            raise ArgumentValueError(source, wanted, value, "leave it out to get what its code computes")
        if key not in KEYS:
            if key in CHANGES_ATTENTION:
                wanted, hint = "not be given here: it is a key of the config itself", f"{key}: {CHANGES_ATTENTION[key]}"
                raise ArgumentValueError(source, wanted, NOTHING, hint)
            known = {"type", *COMMON, *IGNORED, *scheme.keys, *scheme.unread} if "rope_type" in v else KEYS
            raise unknown_name(source, key, known)
        if key in COMMON or key in scheme.keys or value is None:
            continue
        if key not in IGNORED and key not in scheme.unread:
            kinds = ", ".join(name for name, scheme in SCHEMES.items() if key in scheme.keys)
            hint = "" if "rope_type" in v else f"give rope_type too, one of {kinds}"
            raise ArgumentValueError(source, f"not be given for {_type_name(v)}", NOTHING, hint)
        v.sources[name] = f"{source}; {IGNORED.get(key, 'not read here')}"
        ignored.append(name)
    return ignored


def _type_name(v: Values) -> str:
    """Return the rope type for an error, with the key that gives it, and the name there if it is an older one."""
    return f"rope type {rope_type_of(v)!r}" + (f" ({v.sources['rope_type']})" if "rope_type" in v else "")


def _complete_value(part: Part, v: Values, key: str, default: Any) -> None:
    """Check a parameter; if it is missing or null, set it to `default`, or raise if that is `REQUIRED`."""
    if v.get(key) is None or (key.startswith("mscale") and v[key] == 0):
        if default is not REQUIRED:
            v.put(key, default, f"default of {rope_type_of(v)}")
        elif rope_type_of(v) != "yarn" or key != "factor" or key not in v:  # null: it is derived from the lengths
            name = part.name(*(() if key == LENGTHS[0] else [written_parameters(part).name]), key)
            length = v.find(LENGTHS[0]) if key == ORIGINAL else None
            taken = length and f"transformers takes {length.source}, {brief(length.value)}: write it if that is right"
            raise ArgumentValueError(name, f"be given for {_type_name(v)}", NOTHING, taken or "")
    elif isinstance(default, bool):
        v.check(key, flag)
    elif key in ("short_factor", "long_factor"):
        v.check(key, _number_of_each_pair)
    elif v.check(key, positive) < 1 and key == "factor":  # other programs have its reciprocal
        hint = f"write {1 / v[key]}" if (1 / v[key]).is_integer() else ""
        raise ArgumentValueError(v.sources[key], "be at least 1", v[key], hint)


def _number_of_each_pair(name: str, value: object) -> tuple[float, ...]:
    """Return a list of positive numbers as a tuple; raise if it is none, or longer than any head."""
    if not isinstance(value, list | tuple):
        raise ArgumentTypeError(name, "be a list of numbers", value)
    if len(value) > LARGEST_HEAD:
        raise ArgumentValueError(name, "have one number for each pair", len(value))
    return tuple(positive(name, number) for number in value)
