// The explorer: sliders -> frequencies -> a clock and three charts. No library, nothing fetched.
// The formulas are those of `frequencies` and `scaling` in rope_any; tests/test_site.py holds the two together.
"use strict";

{
  // --- formulas: as in rope_any, and in the same order of operations -----------------------------------------

  const plain = ({ base, head_dim }) => Array.from({ length: head_dim / 2 }, (_, i) => base ** ((-2 * i) / head_dim));

  const clip = (x) => Math.min(Math.max(x, 0), 1);
  const blend = (at0, at1, ramp) => at0 * (1 - ramp) + at1 * ramp;
  const linear = (f, s) => f.map((x) => x / s);
  const ntk = (f, s) => f.map((x, i) => x * s ** (-i / Math.max(f.length - 1, 1)));

  function byParts(f, s, length, alpha, beta) {
    const turns = (x) => (x * length) / (2 * Math.PI);
    const ramp = (x) => (alpha < beta ? clip((turns(x) - alpha) / (beta - alpha)) : Number(turns(x) > alpha));
    return f.map((x) => blend(x / s, x, ramp(x)));
  }

  function yarn(f, { factor: s, base, trained, beta_fast, beta_slow, truncate }) {
    const [floor, ceil] = truncate ? [Math.floor, Math.ceil] : [Number, Number];
    const index = (turns) => (f.length * Math.log(trained / (turns * 2 * Math.PI))) / Math.log(base);
    const low = Math.max(floor(index(beta_fast)), 0);
    let high = Math.min(ceil(index(beta_slow)), 2 * f.length - 1);
    if (low === high) high += 0.001;
    return f.map((x, i) => blend(x, x / s, clip((i - low) / (high - low))));
  }

  // LongRoPE's lists: the numbers that were typed if they fit; else ones for the short list, and for the long one from
  // 1 to the factor, evenly in the exponent.
  const LISTS = ["short_factor", "long_factor"];
  const typed = (text) =>
    (text ?? "")
      .split(/[\s,[\]]+/)
      .filter(Boolean)
      .map(Number);
  const fits = (list, { head_dim }) => list.length === head_dim / 2 && list.every((x) => x > 0 && x < Infinity);
  const rising = ({ factor: s, head_dim: d }) =>
    Array.from({ length: d / 2 }, (_, i) => s ** (i / Math.max(d / 2 - 1, 1)));
  function longList(state) {
    const name = extended(state) > state.trained ? "long_factor" : "short_factor";
    const list = typed(state[name]);
    if (fits(list, state)) return list;
    return name === "long_factor" ? rising(state) : rising({ ...state, factor: 1 });
  }
  function listsInPython({ factor: s, head_dim: d, ...state }) {
    const otherwise = {
      short_factor: python`[1] * ${d / 2}`,
      long_factor: python`[${s} ** (i / ${Math.max(d / 2 - 1, 1)}) for i in range(${d / 2})]`,
    };
    return LISTS.map((name) => {
      const list = typed(state[name]);
      return `${name} = ${fits(list, { head_dim: d }) ? `[${list.join(", ")}]` : otherwise[name]}`;
    }).join("\n");
  }

  // Each scheme: what it is called, which other settings it reads, what it makes of the plain frequencies, and the same
  // as a call in Python.
  const RAMP = ["beta_fast", "beta_slow", "truncate"];
  const BAND = ["low_freq_factor", "high_freq_factor"];
  const SCHEMES = {
    plain: { label: "plain", reads: [], scale: (f) => f },
    linear: {
      label: "linear",
      reads: ["factor", "context"],
      scale: (f, { factor: s }) => linear(f, s),
      call: (s) => python`linear(f, ${s.factor})`,
    },
    ntk: {
      label: "NTK",
      reads: ["factor", "context"],
      scale: (f, { factor: s }) => ntk(f, s),
      call: (s) => python`ntk(f, ${s.factor})`,
    },
    dynamic_ntk: {
      label: "dynamic NTK",
      reads: ["factor", "context"],
      scale: (f, s) => ntk(f, Math.max((s.factor * extended(s)) / s.trained - (s.factor - 1), 1)),
      call: (s) => python`dynamic_ntk(f, ${s.factor}, length=${extended(s)}, trained_length=${s.trained})`,
    },
    yarn: {
      label: "YaRN",
      reads: ["factor", "context", ...RAMP, "attention_factor"],
      scale: yarn,
      call: (s) =>
        python`yarn(f, ${s.factor}, base=${s.base}, original_length=${s.trained}` +
        python`,\n    beta_fast=${s.beta_fast}, beta_slow=${s.beta_slow}, truncate=${s.truncate ? "True" : "False"})`,
      attention: ({ factor }) => 0.1 * Math.log(factor) + 1,
      attentionCall: ({ factor }) => python`yarn_attention_factor(${factor})`,
    },
    llama3: {
      label: "Llama 3",
      reads: ["factor", "context", ...BAND],
      scale: (f, s) => byParts(f, s.factor, s.trained, s.low_freq_factor, s.high_freq_factor),
      call: (s) =>
        python`llama3(f, ${s.factor}, original_length=${s.trained},\n    ` +
        python`low_freq_factor=${s.low_freq_factor}, high_freq_factor=${s.high_freq_factor})`,
    },
    longrope: {
      label: "LongRoPE",
      reads: ["factor", "context", ...LISTS, "attention_factor"],
      scale: (f, s) => f.map((x, i) => x / longList(s)[i]),
      before: listsInPython,
      call: (s) =>
        "longrope(f, short_factor=short_factor, long_factor=long_factor,\n    " +
        python`original_length=${s.trained}, length=${extended(s)})`,
      attention: ({ factor: s, trained: m }) => (s > 1 ? Math.sqrt(1 + Math.log(s) / Math.log(m)) : 1),
      attentionCall: ({ factor: s, trained: m }) => python`longrope_attention_factor(${s}, original_length=${m})`,
    },
  };

  const extended = ({ scheme, trained, factor, context }) =>
    scheme === "plain" ? trained : context || trained * factor;
  const frequencies = (state) => SCHEMES[state.scheme].scale(plain(state), state);
  const attentionFactor = (state) => {
    const { attention } = SCHEMES[state.scheme];
    return attention ? state.attention_factor || attention(state) : 1;
  };

  // Text of Python, with numbers written as there: 10_000.
  const grouped = (digits) => digits.replace(/\B(?=(\d{3})+$)/g, "_");
  const python = (texts, ...numbers) =>
    String.raw({ raw: texts }, ...numbers.map((x) => String(x).replace(/^\d{5,}/, grouped)));

  function inPython(state) {
    const { before, call, attentionCall } = SCHEMES[state.scheme];
    const lines = ["import numpy as np", "import rope_any as ra", ""];
    lines.push(python`f = ra.frequencies(${state.head_dim}, base=${state.base})`);
    if (before) lines.push(before(state));
    if (call) lines.push(`f = ra.scaling.${call(state)}`);
    if (attentionCall) lines.push(`m = ${state.attention_factor || `ra.scaling.${attentionCall(state)}`}`);
    lines.push(`rope = ra.Rope(f, pairing="${state.pairing}"${attentionCall ? ", attention_factor=m" : ""})`, "");
    lines.push("# the angles of the query relative to the key; that of one pair, and the score of all");
    lines.push(python`angles = (${state.position} - ${state.key}) * np.asarray(f)`);
    lines.push(python`angle, score = angles[${state.pair}], np.cos(angles).mean()`);
    return lines.join("\n");
  }

  // The score of a query and a key whose pairs are all alike, relative to distance 0, at a distance r.
  const score = (f, r) => f.reduce((sum, x) => sum + Math.cos(r * x), 0) / f.length;

  // --- the setting: a slider runs over an array of stops, the address may hold any value between the limits ----

  const round2 = (x) => Number(x.toPrecision(2));
  const range = (from, to, value) => Array.from({ length: to - from + 1 }, (_, i) => value(from + i));
  const stepped = (k) => (k <= 20 ? k : round2(20 * 10 ** ((k - 20) / 20))); // one by one, then by about an eighth
  const FACTORS = [1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 40, 48, 64, 96, 128];
  // Products of distances and frequencies are made in doubles: these limits keep them right to 1e-5 radians.
  const POSITIONS = { least: 0, most: 2 ** 31 - 1, step: 1, stops: range(0, 114, stepped) };
  const CONTROLS = {
    base: { first: 10_000, least: 2, most: 1e12, stops: range(60, 160, (k) => round2(10 ** (k / 20))) },
    head_dim: { first: 128, least: 2, most: 1024, step: 2, unit: "features", stops: range(1, 32, (k) => 8 * k) },
    factor: { first: 4, least: 1, most: 1024, unit: "times", stops: FACTORS },
    trained: { first: 4096, least: 1, most: 2 ** 24, step: 1, unit: "tokens", stops: range(7, 18, (k) => 2 ** k) },
    beta_fast: { first: 32, least: 0.01, most: 1e4, unit: "turns", stops: [1, 2, 4, 8, 16, 24, 32, 48, 64, 128] },
    beta_slow: { first: 1, least: 0.01, most: 1e4, unit: "turns", stops: [0.125, 0.25, 0.5, 1, 2, 4, 8, 16, 32] },
    low_freq_factor: { first: 1, least: 0.01, most: 1e4, unit: "turns", stops: [0.125, 0.25, 0.5, 1, 2, 4, 8, 16] },
    high_freq_factor: { first: 4, least: 0.01, most: 1e4, unit: "turns", stops: [0.5, 1, 2, 4, 8, 16, 32, 64] },
    position: { first: 1000, ...POSITIONS },
    key: { first: 990, ...POSITIONS },
    pair: { first: 20, least: 0, most: 511, step: 1, stops: range(0, 511, (k) => k) },
  };
  const MAYBE = {
    context: { least: 1, most: 2 ** 34, step: 1 }, // if empty, trained times factor
    attention_factor: { least: 0.001, most: 1000 }, // if empty, by the formula of the scheme
  };
  const CHOICES = { scheme: Object.keys(SCHEMES), pairing: ["half", "interleaved"], truncate: ["true", "false"] };
  const FIRST = { scheme: "yarn", pairing: "half", truncate: "true" };
  const ALWAYS = ["scheme", "base", "head_dim", "pairing", "trained"];
  const MOVES = ["position", "key", "pair"];
  const NUMBERS = { 1: "a whole number", 2: "an even number", undefined: "a number" };

  // A setting from what stands behind the # of an address, and a sentence for each value that could not be used.
  function read(hash) {
    const given = new URLSearchParams(hash.slice(1));
    const [state, faults] = [{}, []];
    for (const [name, { first = "", least, most, step }] of Object.entries({ ...CONTROLS, ...MAYBE })) {
      const text = given.get(name) ?? String(first);
      const value = text.trim() ? Number(text) : NaN;
      const good = (value >= least && value <= most && !(step && value % step)) || (name in MAYBE && !text.trim());
      state[name] = good ? (text.trim() ? value : "") : first;
      if (!good) faults.push(`${name} must be ${NUMBERS[step]} from ${count(least)} to ${count(most)}; got ${text}.`);
    }
    for (const [name, words] of Object.entries(CHOICES)) {
      const text = given.get(name) ?? FIRST[name];
      if (!words.includes(text)) faults.push(`${name} must be one of ${words.join(", ")}; got ${text}.`);
      state[name] = words.includes(text) ? text : FIRST[name];
    }
    state.truncate = state.truncate === "true";
    for (const name of LISTS) state[name] = given.get(name) ?? "";
    if (state.scheme === "longrope" && state.trained === 1) {
      faults.push("trained must be more than 1 token with LongRoPE.");
      state.trained = CONTROLS.trained.first;
    }
    if (!given.has("pair")) state.pair = Math.round(state.head_dim / 6);
    state.pair = Math.min(state.pair, state.head_dim / 2 - 1);
    for (const [names, fault] of disordered(state)) {
      faults.push(fault);
      for (const name of names) state[name] = CONTROLS[name]?.first ?? "";
    }
    return { state, faults: [...faults, ...listFaults(state)] };
  }

  // Settings of a scheme whose order is wrong: their names, and a sentence.
  function disordered({ scheme, ...state }) {
    const { reads } = SCHEMES[scheme];
    return [["beta_slow", "beta_fast"], BAND, ["trained", "context"]]
      .filter(([low, high]) => reads.includes(high) && state[high] !== "" && state[low] > state[high])
      .map(([low, high]) => [high === "context" ? [high] : [low, high], `${high} must be at least ${low}.`]);
  }

  // Sentences for the lists that were typed and can't be used.
  function listFaults(state) {
    return LISTS.filter((name) => SCHEMES[state.scheme].reads.includes(name))
      .map((name) => [name, typed(state[name])])
      .filter(([, list]) => list.length && !fits(list, state))
      .map(
        ([name, list]) =>
          `${name} must be ${state.head_dim / 2} positive numbers, one for each pair; got ${list.length}.`,
      );
  }

  // The numbers of published configs; the lengths of Gemma 3, which its config lacks, are from arXiv:2503.19786.
  const gemma3 = { head_dim: 256, trained: 32_768, context: 131_072 };
  const PRESETS = {
    "llama-3.1": {
      label: "Llama 3.1 8B",
      setting: { scheme: "llama3", base: 500_000, head_dim: 128, factor: 8, trained: 8192, context: 131_072 },
    },
    "qwen2.5": {
      label: "Qwen2.5 7B, 128K by YaRN",
      setting: { scheme: "yarn", base: 1_000_000, head_dim: 128, factor: 4, trained: 32_768, context: 131_072 },
    },
    "deepseek-v3": {
      label: "DeepSeek-V3",
      setting: {
        ...{ scheme: "yarn", base: 10_000, head_dim: 64, factor: 40, trained: 4096, context: 163_840 },
        ...{ attention_factor: 1, pairing: "interleaved" },
      },
    },
    "gpt-oss": {
      label: "gpt-oss 20B",
      setting: {
        ...{ scheme: "yarn", base: 150_000, head_dim: 64, factor: 32, trained: 4096, context: 131_072 },
        truncate: false,
      },
    },
    "gemma-3-global": {
      label: "Gemma 3 4B, global layers",
      setting: { scheme: "linear", base: 1_000_000, factor: 8, ...gemma3 },
    },
    "gemma-3-local": { label: "Gemma 3 4B, local layers", setting: { scheme: "plain", base: 10_000, ...gemma3 } },
  };

  // What a preset or a config sets, with defaults for all that it leaves out; and any sentences, as of `read`.
  const complete = (setting) => read(`#${new URLSearchParams(setting)}`);
  // The names of the settings that count, as one reads them in the address.
  const counting = ({ scheme }) => [...ALWAYS, ...SCHEMES[scheme].reads];
  const same = (a, b) => counting(a).every((name) => a[name] === b[name]);
  const presetOf = (state) =>
    Object.keys(PRESETS).find((name) => same(complete(PRESETS[name].setting).state, state)) ?? "";

  // --- numbers as they are written ----------------------------------------------------------------------------

  const count = (x) => x.toLocaleString("en", { maximumFractionDigits: x < 1000 ? 3 : 0 }).replaceAll(",", "\u00a0");
  const digits = (x) => (x < 1e4 ? String(Number(x.toPrecision(4))) : count(x));

  // --- drawing ------------------------------------------------------------------------------------------------

  function make(name, attributes, ...children) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  }

  // Draw into the figure's own svg, which stays, so that it keeps the focus and its listeners.
  function show(id, label, width, height, ...children) {
    const figure = part(`#${id}`);
    const svg = figure.querySelector("svg") ?? figure.insertBefore(make("svg", {}), figure.children[1]);
    const interactive = {
      role: "img",
      tabindex: 0,
      "aria-label": `${label} Press the arrow keys to read values.`,
      viewBox: `0 0 ${width} ${height}`,
    };
    for (const [key, value] of Object.entries(interactive)) svg.setAttribute(key, value);
    svg.replaceChildren(...children, make("g", { class: "probe" }));
  }

  const path = (points) => "M" + points.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L");

  // Angles as on paper: counted from the right, anticlockwise, so that a hand of length 1 ends at (cos, sin). All
  // hands are those of the query; of one pair there is also the hand of the key, and an arc from it to the query's.
  function clock(rows, { position, key, pair }, width) {
    if (width <= 40) return; // it is hidden
    const [middle, radius] = [width / 2, Math.min(width, 340) / 2 - 20];
    const at = (angle, r) => [middle + r * Math.cos(angle), radius + 20 - r * Math.sin(angle)];
    const reach = (i, f) => radius * (1 - (0.75 * i) / f.length);
    const hands = ([name, f]) =>
      f.flatMap((x, i) => {
        const [cx, cy] = at(position * x, reach(i, f));
        const hand = make("path", { class: `${name} hand`, d: path([at(0, 0), [cx, cy]]) });
        return [hand, make("circle", { class: name, cx, cy, r: 2.5 })];
      });
    const hours = ["0", "π/2", "π", "3π/2"].map((text, i) => {
      const [x, y] = at((i * Math.PI) / 2, radius + 10);
      return make("text", { x, y: y + 4, "text-anchor": "middle" }, text);
    });
    const face = make("circle", { class: "axis", cx: middle, cy: radius + 20, r: radius });
    const [f, turn] = [rows.at(-1)[1], 2 * Math.PI];
    const turned = ((position - key) * f[pair]) % turn;
    const along = range(0, 32, (k) => at(key * f[pair] + (turned * k) / 32, radius * 0.3));
    const chosen = [
      make("path", { class: "between", d: path(along) }),
      make("path", { class: "of-key", d: path([at(0, 0), at(key * f[pair], radius)]) }),
      make("path", { class: "of-query", d: path([at(0, 0), at(position * f[pair], radius)]) }),
    ];
    const label = `A clock of ${f.length} hands at position ${count(position)}; a table below has the angles.`;
    show("ex-clock", label, width, 2 * radius + 40, face, ...hours, ...rows.flatMap(hands), ...chosen);
    probes["ex-clock"] = {
      points: f.map((x, i) => at(position * x, reach(i, f))),
      mark: ([x, y]) => [make("circle", { class: "found", cx: x, cy: y, r: 6 })],
      say: (i) => `pair ${i}: ${digits((position * f[i]) % turn)} rad, one turn in ${digits(turn / f[i])} tokens`,
      near: ([x, y], [a, b]) => Math.hypot(x - a, y - b),
      choose: (i) => change({ pair: i }),
    };
    remark("ex-clock");
  }

  // What is said of the query and the key: the angle of one pair between them, and the score of all.
  function relation(f, { position, key, pair }) {
    const [turn, r] = [2 * Math.PI, position - key];
    const [angle, rad] = [r * f[pair], (x) => `${digits(x)} rad`];
    const [ofQuery, ofKey] = [position, key].map((at) => rad((at * f[pair]) % turn));
    return (
      `Pair ${pair}: the query's hand is at ${ofQuery}, the key's at ${ofKey}. The angle between them is ` +
      `${count(r)} × ${digits(f[pair])} = ${rad(angle)}, and its cosine ${Math.cos(angle).toFixed(3)}. ` +
      `The score, the mean of the cosines of all ${f.length} pairs, is ${score(f, r).toFixed(3)}.`
    );
  }

  // --- what a chart says under the pointer, or by the arrow keys: for each figure its points, and which is asked -----

  const probes = {};
  const asked = {};

  function remark(id) {
    const { points, mark, say } = probes[id];
    if (asked[id] !== undefined) asked[id] = Math.min(asked[id], points.length - 1);
    const i = asked[id];
    part(`#${id} .probe`).replaceChildren(...(i === undefined ? [] : mark(points[i], i)));
    part(`#${id} output`).value = i === undefined ? "" : say(i);
  }

  function ask(id, i) {
    asked[id] = i;
    remark(id);
  }

  function listen(id) {
    const figure = part(`#${id}`);
    const isChart = (target) => target.closest("svg");
    const nearest = ({ clientX, clientY }) => {
      const svg = figure.querySelector("svg");
      const here = new DOMPoint(clientX, clientY).matrixTransform(svg.getScreenCTM().inverse());
      const away = probes[id].points.map((point) => probes[id].near(point, [here.x, here.y]));
      return away.indexOf(Math.min(...away));
    };
    const moved = (event) => isChart(event.target) && ask(id, nearest(event));
    figure.addEventListener("pointermove", moved);
    figure.addEventListener("pointerdown", moved);
    figure.addEventListener("pointerleave", ({ pointerType }) => pointerType === "mouse" && ask(id, undefined));
    figure.addEventListener("click", (event) => isChart(event.target) && probes[id].choose?.(nearest(event)));
    figure.addEventListener("keydown", (event) => {
      if (!isChart(event.target)) return;
      const last = probes[id].points.length - 1;
      const [i, page] = [asked[id] ?? Math.round(last / 2), Math.ceil(last / 10)];
      const to = {
        ...{ ArrowLeft: i - 1, ArrowDown: i - 1, ArrowRight: i + 1, ArrowUp: i + 1 },
        ...{ PageDown: i - page, PageUp: i + page, Home: 0, End: last },
      }[event.key];
      if (to !== undefined) ask(id, asked[id] === undefined ? i : Math.min(Math.max(to, 0), last));
      else if (event.key === "Escape") ask(id, undefined);
      else if (event.key === "Enter") probes[id].choose?.(i);
      else return;
      event.preventDefault();
    });
    figure.addEventListener("focusout", () => ask(id, undefined));
  }

  function ticks({ domain: [from, to], log, least = 0 }) {
    if (log && to >= 100 * from) {
      const [first, last] = [Math.ceil(Math.log10(from) - 1e-9), Math.floor(Math.log10(to) + 1e-9)];
      const every = Math.ceil((last - first + 1) / 6);
      return range(0, Math.floor((last - first) / every), (k) => 10 ** (first + every * k));
    }
    const rough = Math.max((to - from) / 5, least);
    const step = [1, 2, 5, 10].map((m) => m * 10 ** Math.floor(Math.log10(rough))).find((s) => s >= rough);
    return range(Math.ceil(from / step - 1e-9), Math.floor(to / step + 1e-9), (k) => Number((k * step).toPrecision(6)));
  }

  // One chart: `x` and `y` are { label, domain, log, least, marks }: least the step of ticks, marks pairs
  // of a name and a value. `say` turns x and the values of all rows there into what is said under the pointer.
  function chart(id, label, rows, x, y, width, say) {
    const above = 15 * (x.marks?.length ?? 0); // a line for the name of each
    const [left, right, top, bottom, height] = [58, width - 8, 10 + above, 260, 300];
    const scale = ({ domain, log }, from, to) => {
      const [a, b] = log ? domain.map(Math.log10) : domain;
      return (value) => from + (((log ? Math.log10(value) : value) - a) / (b - a)) * (to - from);
    };
    const [X, Y] = [scale(x, left, right), scale(y, bottom, top)];
    const line = (name, points) => make("path", { class: name, d: path(points), "stroke-linejoin": "round" });
    const upright = (name, v, end = top) =>
      line(name, [
        [X(v), bottom],
        [X(v), end],
      ]);
    const across = (name, v) =>
      line(name, [
        [left, Y(v)],
        [right, Y(v)],
      ]);
    const text = (content, x, y, anchor) => make("text", { x, y, "text-anchor": anchor }, content);
    show(
      id,
      label,
      width,
      height,
      ...ticks(x).flatMap((v) => [upright("axis", v), text(count(v), Math.min(X(v), right - 8), 276, "middle")]),
      ...ticks(y).flatMap((v) => [across("axis", v), text(count(v), left - 6, Y(v) + 4, "end")]),
      text(x.label, (left + right) / 2, height - 4, "middle"),
      // each mark ends at its name, so that the names of those at its right stand above it
      ...(x.marks ?? []).flatMap(([name, v], i) => [
        upright("mark", v, above - 15 * i - 8),
        text(name, X(v) - 4, above - 15 * i, "end"),
      ]),
      ...(y.marks ?? []).flatMap(([name, v], i) => [
        across("mark", v),
        text(`${name}: ${count(v)}`, left + 6, Y(v) + [14, -5][i], "start"),
      ]),
      ...rows.map(([name, points]) =>
        line(
          name,
          points.map(([a, b]) => [X(a), Y(b)]),
        ),
      ),
    );
    const values = (i) => rows.map(([, points]) => points[i][1]);
    probes[id] = {
      points: rows[0][1].map(([a]) => [X(a), bottom]),
      mark: ([at], i) => [
        line("found", [
          [at, bottom],
          [at, top],
        ]),
        ...rows.map(([name], k) => make("circle", { class: `${name} dot`, cx: at, cy: Y(values(i)[k]), r: 4 })),
      ],
      say: (i) => say(rows[0][1][i][0], values(i)),
      near: ([a], [b]) => Math.abs(a - b),
    };
    remark(id);
  }

  const rowsOf = (state) => {
    const scaled = state.scheme === "plain" ? [] : [["scaled", frequencies(state)]];
    return [["plain", plain(state)], ...scaled];
  };
  const called = (state) => ["plain", SCHEMES[state.scheme].label];

  function drawClock(state) {
    const rows = rowsOf(state);
    clock(rows, state, part("#ex-clock").clientWidth);
    part("#ex-relation").textContent = relation(rows.at(-1)[1], state);
  }

  function draw(state) {
    drawClock(state);
    const [pairs, length, rows] = [state.head_dim / 2, extended(state), rowsOf(state)];
    const named =
      length > state.trained
        ? [
            ["trained", state.trained],
            ["extended", length],
          ]
        : [["trained", length]];
    const width = part("#ex-wavelengths").clientWidth;
    const each = (write) => (values) => values.map((value, k) => `${called(state)[k]} ${write(value)}`).join(", ");

    const waves = rows.map(([name, f]) => [name, f.map((x, i) => [i, (2 * Math.PI) / x])]);
    const longest = Math.max(1.5 * length, ...waves.map(([, points]) => points.at(-1)[1]));
    const pair = { label: "pair", domain: [0, Math.max(pairs - 1, 1)], least: 1 };
    const tokens = { domain: [Math.min(5, state.trained / 1.5), longest], log: true, marks: named };
    const tokensOf = each((value) => `${digits(value)} tokens`);
    chart(
      "ex-wavelengths",
      "Wavelength in tokens by pair; a table below has each.",
      waves,
      pair,
      tokens,
      width,
      (i, values) => `pair ${i}: ${tokensOf(values)}`,
    );

    const most = 2 * length;
    const distances = [...new Set(range(0, 240, (k) => Math.round(most ** (k / 240))))];
    const scores = rows.map(([name, f]) => [name, distances.map((r) => [r, score(f, r)])]);
    const lowest = Math.min(...scores.flatMap(([, points]) => points.map(([, y]) => y)));
    const distance = { label: "distance (tokens)", domain: [1, most], log: true, least: 1, marks: named };
    const span = `by distance, from 1 to ${count(most)} tokens.`;
    const scoreOf = each((value) => value.toFixed(3));
    chart(
      "ex-score",
      `Score ${span}`,
      scores,
      distance,
      { domain: [Math.floor(lowest * 5) / 5, 1] },
      width,
      (r, values) => `distance ${count(r)}: ${scoreOf(values)}`,
    );
  }

  function table(state) {
    const [f, scaled, { position }] = [plain(state), frequencies(state), state];
    const head = ["pair", "frequency (radians per token)", "wavelength (tokens)", "times slower", "angle (radians)"];
    const angle = (x) => ((position * x) % (2 * Math.PI)).toFixed(4);
    const rows = scaled.map((x, i) => [i, digits(x), digits((2 * Math.PI) / x), digits(f[i] / x), angle(x)]);
    const row = (kind) => (cells) => `<tr>${cells.map((cell) => `<${kind}>${cell}</${kind}>`).join("")}</tr>`;
    return `<thead>${row("th")(head)}</thead><tbody>${rows.map(row("td")).join("")}</tbody>`;
  }

  function summary(state) {
    const open = (f) => f.filter((x) => 2 * Math.PI > x * state.trained).length;
    const [{ label }, factor] = [SCHEMES[state.scheme], attentionFactor(state)];
    const plainly = `${open(plain(state))} of ${state.head_dim / 2} pairs don't complete a turn`;
    const scaled = state.scheme === "plain" ? "" : `, with ${label} ${open(frequencies(state))}`;
    const attention = factor === 1 ? "" : `; the attention factor is ${digits(factor)}`;
    return `Within the trained ${count(state.trained)} tokens ${plainly}${scaled}${attention}.`;
  }

  // --- the page ------------------------------------------------------------------------------------------------

  const root = document.getElementById("rope-explorer");
  const part = (selector) => root.querySelector(selector);
  const form = part("form");
  const { elements } = form;
  let { state, faults } = read(location.hash);
  let moved = false;
  let later;
  let playing;
  let layers = []; // of a config that was read: the name and the setting of each kind

  // Move the sliders to the stops nearest the setting, and write its values beside them.
  function showControls() {
    for (const [name, { stops, unit = "" }] of Object.entries(CONTROLS)) {
      const input = elements[name];
      const said = `${count(state[name])} ${unit}`.trim();
      const near = (k) => Math.abs(Math.log1p(stops[k]) - Math.log1p(state[name]));
      input.max = name === "pair" ? state.head_dim / 2 - 1 : stops.length - 1;
      input.value = stops.reduce((best, _, k) => (near(k) < near(best) ? k : best), 0);
      input.setAttribute("aria-valuetext", said);
      input.nextElementSibling.value = said;
    }
    for (const name of [...Object.keys(MAYBE), ...LISTS]) {
      if (elements[name] !== document.activeElement) elements[name].value = state[name];
    }
    for (const name of ["scheme", "pairing"]) elements[name].value = state[name];
    elements.truncate.checked = state.truncate;
    elements.preset.value = presetOf(state);
    const shown = [...counting(state), ...MOVES, "preset"];
    for (const row of root.querySelectorAll("form div[data-of]")) row.hidden = !shown.includes(row.dataset.of);
    elements.context.placeholder = `${count(state.trained * state.factor)}, trained × factor`;
    elements.attention_factor.placeholder = `${digits(attentionFactor({ ...state, attention_factor: "" }))}, by formula`;
  }

  function render() {
    showControls();
    const { label } = SCHEMES[state.scheme];
    const preset = PRESETS[elements.preset.value]?.label;
    part("summary span").textContent =
      preset ?? (state.scheme === "plain" ? label : `${label}, factor ${count(state.factor)}`);
    for (const key of root.querySelectorAll(".key .scaled")) {
      key.textContent = label;
      key.hidden = state.scheme === "plain";
    }
    part("[role=alert]").textContent = faults.join(" ");
    draw(state);
    follow();
  }

  // What changes with the positions too, besides the clock.
  function follow() {
    part("#ex-python").textContent = inPython(state);
    if (part("#ex-numbers").open) part("table").innerHTML = table(state);
    clearTimeout(later); // a screen reader, and the address, hear of a setting once it stands still
    later = setTimeout(settle, 250);
  }

  function settle() {
    part("#ex-summary").textContent = summary(state);
    const named = [...counting(state), ...MOVES].filter((name) => state[name] !== "");
    const setting = Object.fromEntries(named.map((name) => [name, state[name]]));
    if (moved) history.replaceState(null, "", `#${new URLSearchParams(setting)}`);
  }

  // Change the setting, unless that would put two values in the wrong order.
  function change(values) {
    const next = { ...state, ...values };
    next.pair = Math.min(next.pair, next.head_dim / 2 - 1);
    if (next.context !== "" && next.trained > next.context && !("context" in values)) next.context = "";
    const wrong = disordered(next).map(([, fault]) => fault);
    if (!wrong.length) state = next;
    faults = [...wrong, ...listFaults(state)];
    moved = true;
    const onlyMoves = Object.keys(values).every((name) => MOVES.includes(name));
    if (!onlyMoves || wrong.length) return render();
    showControls();
    drawClock(state);
    follow();
  }

  // Whole settings, of a preset or a config, in place of all but the positions.
  function replace(setting) {
    const { position, key } = state;
    const whole = complete({ ...setting, position, key });
    if (!whole.faults.length) change(whole.state);
    return whole.faults;
  }

  // Query and key move together, so that the angle between them stays as it is.
  function step(by) {
    const [low, high] = [Math.min(state.position, state.key), Math.max(state.position, state.key)];
    const free = low + by >= 0 && high + by <= POSITIONS.most;
    if (free) change({ position: state.position + by, key: state.key + by });
    else play(false);
  }

  function play(on) {
    clearInterval(playing);
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches; // then one step a second
    playing = on ? setInterval(() => document.hidden || step(1), still ? 1000 : 100) : undefined;
    part("#ex-play").textContent = on ? "pause" : "play";
  }

  function showLayers(i) {
    const [name, setting] = layers[i];
    const wrong = replace(setting);
    const sayWhich = name ? `its ${name} layers` : "this config";
    const plainly = wrong.length ? `The explorer can't draw ${sayWhich}: ${wrong.join(" ")}` : `The picture shows ${sayWhich}.`;
    const lengths = setting.trained ? "" : " It states no length, so the trained length is the default.";
    const unclear =
      setting.scheme === "linear" && setting.trained
        ? " It states one length, which may be the trained or the extended one."
        : "";
    part("#ex-read").textContent = plainly + (wrong.length ? INSPECT : lengths + unclear);
  }

  const INSPECT = " Use rope-any inspect config.json, which reads more models.";

  function readPasted() {
    const text = elements.config.value;
    layers = [];
    part("#ex-read").textContent = "";
    if (text.trim()) {
      try {
        layers = globalThis.ropeConfig.readConfig(text);
      } catch (error) {
        const reason = error.message.replace(/\.$/, "");
        part("#ex-read").textContent = `The explorer can't read this config: ${reason}. The picture is still the one before.${INSPECT}`;
      }
    }
    elements.layers.replaceChildren(...layers.map(([name], i) => new Option(name, i)));
    elements.layers.parentElement.hidden = layers.length < 2;
    if (layers.length) showLayers(0);
  }

  const options = (names) => Object.entries(names).map(([name, { label }]) => new Option(label, name));
  elements.scheme.append(...options(SCHEMES));
  elements.preset.append(new Option("own setting", ""), ...options(PRESETS));
  const inputs = {
    preset({ value }) {
      if (!value) return;
      [elements.config.value, part("#ex-read").textContent] = ["", ""];
      elements.layers.parentElement.hidden = true;
      replace(PRESETS[value].setting);
    },
    config: readPasted,
    layers: ({ value }) => showLayers(Number(value)),
    truncate: ({ checked }) => change({ truncate: checked }),
  };
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", ({ target }) => {
    const { name, value } = target;
    if (Object.hasOwn(inputs, name)) return inputs[name](target);
    if (name in CONTROLS) return change({ [name]: CONTROLS[name].stops[value] });
    if (!(name in MAYBE)) return change({ [name]: value });
    const { least, most, step: by } = MAYBE[name];
    const [, digits, unit] = value.replace(/[\s_]/g, "").match(/^(.*?)([KM]?)$/i);
    const text = unit ? String(Number(digits) * { K: 1024, M: 1024 ** 2 }[unit.toUpperCase()]) : digits;
    const good = !text || (Number(text) >= least && Number(text) <= most && !(by && Number(text) % by));
    change({ [name]: good && text ? Number(text) : "" });
    if (!good)
      part("[role=alert]").textContent = `${name} must be ${NUMBERS[by]} from ${count(least)} to ${count(most)}.`;
  });
  for (const id of ["ex-clock", "ex-wavelengths", "ex-score"]) listen(id);
  part("#ex-moves").addEventListener("click", ({ target: { value } }) => value && step(Number(value)));
  part("#ex-play").addEventListener("click", () => play(playing === undefined));
  part("#ex-copy").addEventListener("click", () => {
    getSelection().selectAllChildren(part("#ex-python")); // to be copied by hand where the clipboard is refused
    navigator.clipboard?.writeText(inPython(state)).catch(() => {});
  });
  part("#ex-numbers").addEventListener("toggle", render);
  addEventListener("resize", () => draw(state));
  addEventListener("hashchange", () => {
    if (!location.hash.includes("=")) return; // it names a heading
    ({ state, faults } = read(location.hash));
    render();
  });
  if (matchMedia("(max-width: 48em)").matches) part("#ex-settings").open = false; // the picture comes first
  root.previousElementSibling.hidden = true; // which says that it needs this script
  root.hidden = false;
  render();

  // for the tests, and the curious
  globalThis.ropeExplorer = { complete, frequencies, attentionFactor, extended, score, inPython, PRESETS };
}
