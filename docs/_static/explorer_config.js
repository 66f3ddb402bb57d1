// Read a config.json as the explorer can draw it: only keys and model types whose meaning is certain, never a guess.
// tests/test_site.py compares what this reads with rope_any, for all published configs and for many made ones.
"use strict";

{
  // Model types whose layers all have one rotation: the pairing, and what holds where the config says nothing.
  // `share` is the default of partial_rotary_factor, if the model reads that key; `head` that of head_dim; a `slice`
  // of the head rotates, of qk_rope_head_dim features; `flag` is a key that may be true and changes nothing then; what
  // `needs` rope_parameters has no default for them; of rope types it takes
  // `only` these; `original` is the default of original_max_position_embeddings.
  const half = { pairing: "half", base: 10_000 };
  const adjacent = { pairing: "interleaved", base: 10_000 };
  const kinds = (sliding, full) => ({ sliding_attention: { ...sliding, scaled: false }, full_attention: full });
  const TYPES = {
    llama: half,
    mistral: half,
    mixtral: { ...half, base: 1_000_000 },
    qwen2: half,
    qwen2_moe: half,
    qwen3: { ...half, head: 128 },
    qwen3_moe: half,
    olmo: half,
    olmo2: half,
    olmoe: half,
    starcoder2: half,
    granite: half,
    gemma: { ...half, head: 256 },
    gemma2: { ...half, head: 256 },
    gpt_oss: { ...half, base: 150_000, head: 64, needs: true },
    phi: { ...half, share: 0.5 },
    phi3: { ...half, share: 1, only: ["default", "longrope"], original: 4096 },
    stablelm: { ...half, share: 0.25 },
    nemotron: { ...half, share: 0.5 },
    glm4_moe: { ...half, share: 0.5 },
    cohere: { ...adjacent, base: 500_000 },
    glm: { ...adjacent, share: 0.5, head: 128 },
    glm4: { ...adjacent, share: 0.5, head: 128 },
    deepseek_v2: { ...adjacent, slice: true },
    deepseek_v3: { ...adjacent, slice: true, flag: "rope_interleave" },
    kimi_k2: { ...adjacent, slice: true, flag: "rope_interleave" },
    gemma3_text: {
      ...half,
      head: 256,
      kinds: kinds({ base: 10_000, key: "rope_local_base_freq" }, { base: 1_000_000 }),
    },
  };

  // Of each rope type the keys that it must have, and those that it may have.
  const RAMP = ["attention_factor", "beta_fast", "beta_slow", "truncate", "mscale", "mscale_all_dim"];
  const LENGTH = "original_max_position_embeddings";
  const SCHEMES = {
    default: { scheme: "plain", must: [], may: [] },
    linear: { scheme: "linear", must: ["factor"], may: [] },
    dynamic: { scheme: "dynamic_ntk", must: ["factor"], may: [] },
    yarn: { scheme: "yarn", must: ["factor", LENGTH], may: RAMP },
    llama3: { scheme: "llama3", must: ["factor", LENGTH, "low_freq_factor", "high_freq_factor"], may: [] },
    longrope: {
      scheme: "longrope",
      must: ["short_factor", "long_factor"],
      may: [LENGTH, "factor", "attention_factor"],
    },
  };
  const EVERYWHERE = ["rope_type", "type", "rope_theta", "partial_rotary_factor"];

  // Keys of a config that may concern the rotation, and those of them that this code reads or knows to be harmless.
  const ROTARY =
    /rope|rotary|theta|freq|mscale|scaling|position|partial|alibi|head_dim|n_embd|interleave|layer_types|_config$/;
  const KNOWN = [
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "partial_rotary_factor",
    "head_dim",
    "max_position_embeddings",
    LENGTH,
    "layer_types",
    "quantization_config",
    "generation_config",
    "dflash_config",
    "eagle_config",
    "moe_layer_freq",
    "routed_scaling_factor",
    "logits_scaling",
  ];
  const MAY_BE_FALSE = ["use_mrope", "alibi"]; // and then say nothing
  const OF_SLICES = ["qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"];

  class Refusal extends Error {}
  const refuse = (reason) => {
    throw new Refusal(reason);
  };
  const isObject = (x) => typeof x === "object" && x !== null && !Array.isArray(x);
  const given = (object, key) => Object.hasOwn(object, key) && object[key] !== null;

  function number(object, key) {
    const value = object[key];
    if (typeof value !== "number" || !(value > 0))
      refuse(`${key} must be a positive number; got ${JSON.stringify(value)}`);
    return value;
  }

  // The one value of a key in several objects; undefined if none has it.
  function agreed(key, ...objects) {
    const values = objects.filter((object) => given(object, key)).map((object) => number(object, key));
    if (new Set(values).size > 1) refuse(`${key} has two values: ${values.join(" and ")}`);
    return values[0];
  }

  function headDim(config, type) {
    if (type.slice) {
      const width = given(config, "qk_rope_head_dim")
        ? number(config, "qk_rope_head_dim")
        : refuse("it has no qk_rope_head_dim");
      if (given(config, "head_dim")) refuse("it has head_dim besides qk_rope_head_dim");
      return width;
    }
    if (given(config, "head_dim")) return number(config, "head_dim");
    if (type.head) return Object.hasOwn(config, "head_dim") ? refuse("its head_dim is null") : type.head;
    for (const key of ["hidden_size", "num_attention_heads"])
      if (!given(config, key)) refuse(`it has no head_dim and no ${key}`);
    const width = number(config, "hidden_size") / number(config, "num_attention_heads");
    return Number.isInteger(width) ? width : refuse("hidden_size is no multiple of num_attention_heads");
  }

  function rotaryDim(config, scaling, type) {
    const share = agreed("partial_rotary_factor", config, scaling);
    if (share !== undefined && type.share === undefined) refuse("its model type does not read partial_rotary_factor");
    const width = headDim(config, type) * (share ?? type.share ?? 1);
    if (share > 1) refuse("partial_rotary_factor is above 1");
    if (!Number.isInteger(width) || width % 2) refuse(`${width} features would rotate, which is no even number`);
    return width;
  }

  // The keys of one rotation, from the config, the object that scales it, and what holds for its kind of layer.
  function rotation(config, scaling, type, base) {
    if (given(scaling, "type") && given(scaling, "rope_type") && scaling.type !== scaling.rope_type) {
      refuse(`type and rope_type differ: ${scaling.type} and ${scaling.rope_type}`);
    }
    const named = (given(scaling, "rope_type") ? scaling.rope_type : scaling.type) ?? "default";
    const name = named === "su" && type.only ? "longrope" : named;
    if (!Object.hasOwn(SCHEMES, name) || (type.only && !type.only.includes(name)))
      refuse(`the explorer does not draw the rope type ${JSON.stringify(name)}`);
    const { scheme, must, may } = SCHEMES[name];
    const unknown = Object.keys(scaling).filter(
      (key) => given(scaling, key) && ![...must, ...may, ...EVERYWHERE].includes(key),
    );
    if (unknown.length)
      refuse(`the explorer does not know what ${unknown.join(", ")} means with the rope type ${name}`);
    for (const key of must) if (!given(scaling, key)) refuse(`the rope type ${name} needs ${key}`);
    const setting = { scheme, pairing: type.pairing, head_dim: rotaryDim(config, scaling, type), base };
    for (const key of ["factor", "attention_factor", "beta_fast", "beta_slow", "low_freq_factor", "high_freq_factor"]) {
      if (given(scaling, key)) setting[key] = number(scaling, key);
    }
    if (given(scaling, "truncate")) {
      if (typeof scaling.truncate !== "boolean") refuse("truncate must be true or false");
      setting.truncate = scaling.truncate;
    }
    for (const key of ["short_factor", "long_factor"]) {
      if (!given(scaling, key)) continue;
      const list = scaling[key];
      if (
        !Array.isArray(list) ||
        list.length !== setting.head_dim / 2 ||
        !list.every((x) => typeof x === "number" && x > 0)
      ) {
        refuse(`${key} must be a list of ${setting.head_dim / 2} positive numbers, one for each pair`);
      }
      setting[key] = list.join(", ");
    }
    const both = ["mscale", "mscale_all_dim"].filter((key) => given(scaling, key));
    if (both.length && setting.attention_factor !== undefined) refuse(`it has attention_factor besides ${both[0]}`);
    if (both.length === 1) refuse(`it has ${both[0]} alone`);
    if (both.length) {
      const [part, all] = both.map((key) => 0.1 * number(scaling, key) * Math.log(Math.max(setting.factor, 1)) + 1);
      setting.attention_factor = part / all;
    }
    if (type.kinds && setting.truncate === false) refuse("truncate is false for a kind of layers");
    const filled = type.original && !given(config, LENGTH) ? { ...config, [LENGTH]: type.original } : config;
    return { ...setting, ...lengths(filled, scaling, scheme, setting) };
  }

  // The trained length and the longest one, as far as the config states them, and LongRoPE's factor, which follows.
  function lengths(config, scaling, scheme, { factor }) {
    const longest = given(config, "max_position_embeddings") ? number(config, "max_position_embeddings") : undefined;
    const original = agreed(LENGTH, config, scaling);
    if (["plain", "linear"].includes(scheme))
      return longest ? { trained: longest, context: scheme === "plain" ? "" : longest } : {};
    if (scheme === "dynamic_ntk")
      return longest ? { trained: longest } : refuse("the rope type dynamic needs max_position_embeddings");
    if (scheme !== "longrope") return { trained: original, context: longest > original ? longest : "" };
    if (!original || !longest) refuse(`the rope type longrope needs ${LENGTH} and max_position_embeddings`);
    return { trained: original, context: longest > original ? longest : "", factor: factor ?? longest / original };
  }

  // [[name of a kind of layer or "", setting], ...]; throws an error whose message says why it can't be read.
  function readConfig(text) {
    let whole;
    try {
      whole = JSON.parse(text);
    } catch (error) {
      refuse(`it is not JSON: ${error.message}`);
    }
    if (!isObject(whole)) refuse("it is not a JSON object");
    const inner = isObject(whole.text_config);
    const config = inner ? whole.text_config : whole;
    if (inner) for (const key of KNOWN.slice(0, 6)) if (given(whole, key)) refuse(`${key} stands beside text_config`);
    const { model_type: name } = config;
    if (typeof name !== "string") refuse("it has no model_type");
    if (!Object.hasOwn(TYPES, name)) refuse(`the explorer does not know the model type ${name}`);
    const type = TYPES[name];
    const known = [
      ...KNOWN,
      ...(type.slice ? OF_SLICES : []),
      ...Object.values(type.kinds ?? {}).map(({ key }) => key),
    ];
    const strange = Object.keys(config)
      .filter((key) => ROTARY.test(key) && given(config, key) && !known.includes(key))
      .filter((key) => key !== type.flag || config[key] !== true)
      .filter((key) => !MAY_BE_FALSE.includes(key) || config[key] !== false);
    if (strange.length) refuse(`the explorer does not know what ${strange.join(", ")} means for ${name}`);
    if (given(config, "rope_scaling") && given(config, "rope_parameters"))
      refuse("it has both rope_scaling and rope_parameters");
    const scaling =
      config.rope_parameters ?? config.rope_scaling ?? (type.needs ? refuse("it has no rope_parameters") : {});
    if (!isObject(scaling)) refuse("rope_scaling or rope_parameters is no object");
    const types = config.layer_types ?? [];
    if (!Array.isArray(types)) refuse("layer_types is no list");
    const other = types.find((x) => !["full_attention", "sliding_attention"].includes(x));
    if (other !== undefined) refuse(`the explorer does not know layers of type ${JSON.stringify(other)}`);

    if (!type.kinds) return [["", rotation(config, scaling, type, agreed("rope_theta", config, scaling) ?? type.base)]];
    const chosen = Object.entries(type.kinds).filter(([kind]) => !types.length || types.includes(kind));
    const nested = Object.values(scaling).some(isObject);
    if (!nested && given(scaling, "type")) refuse(`${name} reads rope_type in place of type`);
    if (given(config, LENGTH)) refuse(`${name} does not read ${LENGTH} there`);
    if (nested !== given(config, "rope_parameters") && Object.keys(scaling).length) {
      refuse("rope_parameters must be by kind of layer for this model type, and rope_scaling must not");
    }
    return chosen.map(([kind, { base, key, scaled = true }]) => {
      if (nested) {
        if (!isObject(scaling[kind])) refuse(`rope_parameters has nothing for ${kind}`);
        const beside = Object.keys(scaling).filter((each) => !Object.hasOwn(type.kinds, each));
        if (beside.length) refuse(`rope_parameters has ${beside[0]} beside the kinds of layers`);
        const outside = ["rope_theta", key].find((each) => each && given(config, each));
        if (outside) refuse(`${outside} stands beside rope_parameters of each kind of layer`);
        return [
          kind,
          rotation(
            config,
            scaling[kind],
            type,
            agreed("rope_theta", scaling[kind]) ?? refuse(`${kind} has no rope_theta`),
          ),
        ];
      }
      const found = key ? agreed(key, config) : agreed("rope_theta", config, scaling);
      return [kind, rotation(config, scaled ? scaling : {}, type, found ?? base)];
    });
  }

  globalThis.ropeConfig = { readConfig, types: Object.keys(TYPES) };
}
