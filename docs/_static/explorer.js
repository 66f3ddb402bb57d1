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
    const ramp = (x) => clip(((x * length) / (2 * Math.PI) - alpha) / (beta - alpha));
    return f.map((x) => blend(x / s, x, ramp(x)));
  }

  function yarn(f, s, base, length) {
    const dim = 2 * f.length;
    const index = (turns) => (dim * Math.log(length / (turns * 2 * Math.PI))) / (2 * Math.log(base));
    const low = Math.max(Math.floor(index(32)), 0);
    let high = Math.min(Math.ceil(index(1)), dim - 1);
    if (low === high) high += 0.001;
    return f.map((x, i) => blend(x, x / s, clip((i - low) / (high - low))));
  }

  // LongRoPE's long list: the numbers that were typed if they fit, else from 1 to the factor, evenly in the exponent.
  const typed = ({ long_factor }) => (long_factor ?? "").split(/[\s,[\]]+/).filter(Boolean).map(Number);
  const fits = (list, { head_dim }) => list.length === head_dim / 2 && list.every((x) => x > 0 && x < Infinity);
  const rising = ({ factor: s, head_dim: d }) =>
    Array.from({ length: d / 2 }, (_, i) => s ** (i / Math.max(d / 2 - 1, 1)));
  const longFactors = (state) => (fits(typed(state), state) ? typed(state) : rising(state));
  const longInPython = ({ factor: s, head_dim: d, ...state }) =>
    fits(typed(state), { head_dim: d })
      ? `[${typed(state).join(", ")}]`
      : python`[${s} ** (i / ${Math.max(d / 2 - 1, 1)}) for i in range(${d / 2})]`;

  // Each scheme: what it is called, what it makes of the plain frequencies, and the same as a call in Python.
  const SCHEMES = {
    plain: { label: "plain", scale: (f) => f },
    linear: { label: "linear", scale: (f, { factor: s }) => linear(f, s), call: (s) => python`linear(f, ${s.factor})` },
    ntk: { label: "NTK", scale: (f, { factor: s }) => ntk(f, s), call: (s) => python`ntk(f, ${s.factor})` },
    dynamic_ntk: {
      label: "dynamic NTK",
      scale: (f, { factor: s, trained: m }) => ntk(f, (s * (m * s)) / m - (s - 1)),
      call: ({ factor: s, trained: m }) => python`dynamic_ntk(f, ${s}, length=${m * s}, trained_length=${m})`,
    },
    yarn: {
      label: "YaRN",
      scale: (f, { factor, base, trained }) => yarn(f, factor, base, trained),
      call: ({ factor: s, base: b, trained: m }) => python`yarn(f, ${s}, base=${b}, original_length=${m})`,
      attention: ({ factor }) => 0.1 * Math.log(factor) + 1,
      attentionCall: ({ factor }) => python`yarn_attention_factor(${factor})`,
    },
    llama3: {
      label: "Llama 3",
      scale: (f, { factor, trained }) => byParts(f, factor, trained, 1, 4),
      call: ({ factor: s, trained: m }) =>
        python`llama3(f, ${s}, original_length=${m}, low_freq_factor=1, high_freq_factor=4)`,
    },
    longrope: {
      label: "LongRoPE",
      scale: (f, s) => (s.factor > 1 ? f.map((x, i) => x / longFactors(s)[i]) : f), // else the short list, of ones
      before: (s) => `long_factor = ${longInPython(s)}`,
      call: ({ factor: s, trained: m }) =>
        "longrope(f, short_factor=[1] * len(f), long_factor=long_factor, " +
        python`original_length=${m}, length=${m * s})`,
      attention: ({ factor: s, trained: m }) => (s > 1 ? Math.sqrt(1 + Math.log(s) / Math.log(m)) : 1),
      attentionCall: ({ factor: s, trained: m }) => python`longrope_attention_factor(${s}, original_length=${m})`,
    },
  };

  const extended = ({ scheme, trained, factor }) => (scheme === "plain" ? trained : trained * factor);
  const frequencies = (state) => SCHEMES[state.scheme].scale(plain(state), state);
  const attentionFactor = (state) => SCHEMES[state.scheme].attention?.(state) ?? 1;

  // Text of Python, with numbers written as there: 10_000.
  const grouped = (digits) => digits.replace(/\B(?=(\d{3})+$)/g, "_");
  const python = (texts, ...numbers) =>
    String.raw({ raw: texts }, ...numbers.map((x) => String(x).replace(/^\d{5,}/, grouped)));

  function inPython(state) {
    const { before, call, attentionCall } = SCHEMES[state.scheme];
    const lines = ["import rope_any as ra", python`f = ra.frequencies(${state.head_dim}, base=${state.base})`];
    if (before) lines.push(before(state));
    if (call) lines.push(`f = ra.scaling.${call(state)}`);
    if (attentionCall) lines.push(`m = ra.scaling.${attentionCall(state)}`);
    lines.push(`rope = ra.Rope(f, pairing="half"${attentionCall ? ", attention_factor=m" : ""})  # or "interleaved"`);
    return lines.join("\n");
  }

  // The score of a query and a key whose pairs are all alike, and the bound of RoFormer 3.4.3, at a distance r.
  function decay(f, r) {
    let [re, im, sum] = [0, 0, 0];
    for (const x of f) {
      re += Math.cos(r * x); // S_j = Σ_{i<j} exp(i r f_i)
      im += Math.sin(r * x);
      sum += Math.hypot(re, im);
    }
    return { score: re / f.length, bound: sum / f.length };
  }

  // --- the setting: a slider runs over an array of stops, the address may hold any value between the limits ----

  const round2 = (x) => Number(x.toPrecision(2));
  const range = (from, to, value) => Array.from({ length: to - from + 1 }, (_, i) => value(from + i));
  const stepped = (k) => (k <= 20 ? k : round2(20 * 10 ** ((k - 20) / 20))); // one by one, then by about an eighth
  const FACTORS = [1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 40, 48, 64, 96, 128];
  // Products of distances up to 2 · trained · factor and frequencies are made in doubles: these limits keep them right
  // to 1e-5 radians.
  const CONTROLS = {
    base: { first: 10_000, least: 2, most: 1e12, stops: range(60, 160, (k) => round2(10 ** (k / 20))) },
    head_dim: { first: 128, least: 2, most: 1024, step: 2, unit: "features", stops: range(1, 32, (k) => 8 * k) },
    factor: { first: 4, least: 1, most: 1024, unit: "times", stops: FACTORS },
    trained: { first: 4096, least: 1, most: 2 ** 24, step: 1, unit: "tokens", stops: range(7, 18, (k) => 2 ** k) },
    position: { first: 1000, least: 0, most: 2 ** 31 - 1, step: 1, stops: range(0, 114, stepped) },
  };
  const NUMBERS = { 1: "a whole number", 2: "an even number", undefined: "a number" };

  // A setting from what stands behind the # of an address, and a sentence for each value that could not be used.
  function read(hash) {
    const given = new URLSearchParams(hash.slice(1));
    const [state, faults] = [{ scheme: "yarn" }, []];
    for (const [name, { first, least, most, step }] of Object.entries(CONTROLS)) {
      const text = given.get(name) ?? String(first);
      const value = text.trim() ? Number(text) : NaN;
      const good = value >= least && value <= most && !(step && value % step);
      state[name] = good ? value : first;
      if (!good) faults.push(`${name} must be ${NUMBERS[step]} from ${count(least)} to ${count(most)}; got ${text}.`);
    }
    const scheme = given.get("scheme") ?? state.scheme;
    if (Object.hasOwn(SCHEMES, scheme)) state.scheme = scheme;
    else faults.push(`scheme must be one of ${Object.keys(SCHEMES).join(", ")}; got ${scheme}.`);
    state.long_factor = given.get("long_factor") ?? "";
    if (state.scheme === "longrope" && state.trained === 1) {
      faults.push("trained must be more than 1 token with LongRoPE.");
      state.trained = CONTROLS.trained.first;
    }
    return { state, faults: [...faults, ...listFaults(state)] };
  }

  // A sentence if the long list that was typed can't be used.
  function listFaults(state) {
    const list = typed(state);
    if (!list.length || fits(list, state)) return [];
    return [`long_factor must be ${state.head_dim / 2} positive numbers, one for each pair; got ${list.length}.`];
  }

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

  function show(id, label, width, height, ...children) {
    const figure = part(`#${id}`);
    figure.querySelector("svg")?.remove();
    figure.prepend(make("svg", { role: "img", "aria-label": label, viewBox: `0 0 ${width} ${height}` }, ...children));
  }

  const path = (points) => "M" + points.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L");

  // Angles as on paper: counted from the right, anticlockwise, so that a hand of length 1 ends at (cos, sin).
  function clock(rows, { position }, width) {
    const [middle, radius] = [width / 2, Math.min(width, 340) / 2 - 20];
    const at = (angle, r) => [middle + r * Math.cos(angle), radius + 20 - r * Math.sin(angle)];
    const hands = ([name, f]) =>
      f.flatMap((x, i) => {
        const [cx, cy] = at(position * x, radius * (1 - (0.75 * i) / f.length));
        const hand = make("path", { class: `${name} hand`, d: path([at(0, 0), [cx, cy]]) });
        return [hand, make("circle", { class: name, cx, cy, r: 2.5 })];
      });
    const hours = ["0", "π/2", "π", "3π/2"].map((text, i) => {
      const [x, y] = at((i * Math.PI) / 2, radius + 10);
      return make("text", { x, y: y + 4, "text-anchor": "middle" }, text);
    });
    const face = make("circle", { class: "axis", cx: middle, cy: radius + 20, r: radius });
    const label = `A clock of ${rows[0][1].length} hands at position ${count(position)}; a table below has the angles.`;
    show("ex-clock", label, width, 2 * radius + 40, face, ...hours, ...rows.flatMap(hands));
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
  // of a name and a value.
  function chart(id, label, rows, x, y, width) {
    const above = 15 * (x.marks?.length ?? 0); // a line for the name of each
    const [left, right, top, bottom, height] = [58, width - 8, 10 + above, 260, 300];
    const scale = ({ domain, log }, from, to) => {
      const [a, b] = log ? domain.map(Math.log10) : domain;
      return (value) => from + (((log ? Math.log10(value) : value) - a) / (b - a)) * (to - from);
    };
    const [X, Y] = [scale(x, left, right), scale(y, bottom, top)];
    const line = (name, points) => make("path", { class: name, d: path(points), "stroke-linejoin": "round" });
    const upright = (name, v, end = top) => line(name, [[X(v), bottom], [X(v), end]]);
    const across = (name, v) => line(name, [[left, Y(v)], [right, Y(v)]]);
    const text = (content, x, y, anchor) => make("text", { x, y, "text-anchor": anchor }, content);
    show(id, label, width, height,
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
      ...rows.map(([name, points]) => line(name, points.map(([a, b]) => [X(a), Y(b)]))),
    );
  }

  function draw(state) {
    const [pairs, length, scaled] = [state.head_dim / 2, extended(state), state.scheme !== "plain"];
    const rows = [["plain", plain(state)], ...(scaled ? [["scaled", frequencies(state)]] : [])];
    const marks = [["trained", state.trained], ...(scaled ? [["extended", length]] : [])];
    const width = part("#ex-clock").clientWidth;
    clock(rows, state, width);

    const waves = rows.map(([name, f]) => [name, f.map((x, i) => [i, (2 * Math.PI) / x])]);
    const longest = Math.max(1.5 * length, ...waves.map(([, points]) => points.at(-1)[1]));
    const pair = { label: "pair", domain: [0, Math.max(pairs - 1, 1)], least: 1 };
    const tokens = { domain: [Math.min(5, state.trained / 1.5), longest], log: true, marks };
    chart("ex-wavelengths", "Wavelength in tokens by pair; a table below has each.", waves, pair, tokens, width);

    const most = 2 * length;
    const distances = [...new Set(range(0, 240, (k) => Math.round(most ** (k / 240))))];
    const decays = rows.map(([name, f]) => [name, distances.map((r) => [r, decay(f, r)])]);
    const of = (key) => decays.map(([name, points]) => [name, points.map(([r, both]) => [r, both[key]])]);
    const lowest = Math.min(...of("score").flatMap(([, points]) => points.map(([, y]) => y)));
    const distance = { label: "distance (tokens)", domain: [1, most], log: true, least: 1, marks };
    const span = `by distance, from 1 to ${count(most)} tokens.`;
    chart("ex-score", `Score ${span}`, of("score"), distance, { domain: [Math.floor(lowest * 5) / 5, 1] }, width);
    chart("ex-bound", `Bound ${span}`, of("bound"), distance, { domain: [0, (pairs + 1) / 2] }, width);
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
  const { elements } = part("fieldset");
  let { state, faults } = read(location.hash);
  let moved = false;
  let later;

  // Move the sliders to the stops nearest the setting, write its values beside them, and draw it.
  function render() {
    for (const [name, { stops, unit = "" }] of Object.entries(CONTROLS)) {
      const input = elements[name];
      const said = `${count(state[name])} ${unit}`.trim();
      const near = (k) => Math.abs(Math.log1p(stops[k]) - Math.log1p(state[name]));
      input.max = stops.length - 1;
      input.value = stops.reduce((best, _, k) => (near(k) < near(best) ? k : best), 0);
      input.setAttribute("aria-valuetext", said);
      input.nextElementSibling.value = said;
    }
    elements.scheme.value = state.scheme;
    elements.factor.disabled = state.scheme === "plain";
    elements.long_factor.parentElement.hidden = state.scheme !== "longrope";
    if (elements.long_factor.value !== state.long_factor) elements.long_factor.value = state.long_factor;
    part(".key .scaled").textContent = SCHEMES[state.scheme].label;
    part(".key .scaled").hidden = state.scheme === "plain";
    part("[role=alert]").textContent = faults.join(" ");
    part("#ex-python").textContent = inPython(state);
    if (part("details").open) part("table").innerHTML = table(state);
    draw(state);
    clearTimeout(later); // a screen reader, and the address, hear of a setting once it stands still
    later = setTimeout(settle, 250);
  }

  function settle() {
    part("[role=status]").textContent = summary(state);
    const { long_factor, ...sliders } = state;
    const setting = state.scheme === "longrope" && long_factor ? state : sliders;
    if (moved) history.replaceState(null, "", `#${new URLSearchParams(setting)}`);
  }

  function change(values) {
    state = { ...state, ...values };
    faults = state.scheme === "longrope" ? listFaults(state) : [];
    moved = true;
    render();
  }

  elements.scheme.append(...Object.entries(SCHEMES).map(([name, { label }]) => new Option(label, name)));
  part("fieldset").addEventListener("input", ({ target: { name, value } }) =>
    change({ [name]: name in CONTROLS ? CONTROLS[name].stops[value] : value }),
  );
  part("figcaption").addEventListener("click", ({ target: { value } }) => {
    if (value) change({ position: Math.min(Math.max(state.position + Number(value), 0), CONTROLS.position.most) });
  });
  part("#ex-copy").addEventListener("click", () => {
    getSelection().selectAllChildren(part("#ex-python")); // to be copied by hand where the clipboard is refused
    navigator.clipboard?.writeText(inPython(state)).catch(() => {});
  });
  part("details").addEventListener("toggle", render);
  addEventListener("resize", () => draw(state));
  addEventListener("hashchange", () => {
    if (!location.hash.includes("=")) return; // it names a heading
    ({ state, faults } = read(location.hash));
    render();
  });
  root.previousElementSibling.hidden = true; // which says that it needs this script
  root.hidden = false;
  render();

  globalThis.ropeExplorer = { frequencies, attentionFactor, decay, inPython }; // for the tests, and the curious
}
