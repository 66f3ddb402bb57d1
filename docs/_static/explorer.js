// The explorer: sliders -> frequencies -> a clock and three charts. No library, nothing fetched.
// The formulas are those of `frequencies` and `scaling` in rope_any; tests/test_site.py holds the two together.
"use strict";

{
  // --- formulas: as in rope_any, and in the same order of operations -----------------------------------------

  const plain = ({ base, head_dim }) => Array.from({ length: head_dim / 2 }, (_, i) => base ** ((-2 * i) / head_dim));

  const clip = (x) => Math.min(Math.max(x, 0), 1);
  const blend = (at0, at1, ramp) => at0 * (1 - ramp) + at1 * ramp;
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

  // Each scheme: what it is called, what it makes of the plain frequencies, and the same as a call in Python.
  const SCHEMES = {
    plain: { label: "plain", scale: (f) => f },
    linear: {
      label: "linear",
      scale: (f, { factor }) => f.map((x) => x / factor),
      call: ({ factor }) => `linear(f, ${python(factor)})`,
    },
    ntk: {
      label: "NTK",
      scale: (f, { factor }) => ntk(f, factor),
      call: ({ factor }) => `ntk(f, ${python(factor)})`,
    },
    dynamic_ntk: {
      label: "dynamic NTK",
      scale: (f, s) => ntk(f, (s.factor * extended(s)) / s.trained - (s.factor - 1)),
      call: (s) =>
        `dynamic_ntk(f, ${python(s.factor)}, length=${python(extended(s))}, trained_length=${python(s.trained)})`,
    },
    yarn: {
      label: "YaRN",
      scale: (f, { factor, base, trained }) => yarn(f, factor, base, trained),
      call: ({ factor, base, trained }) =>
        `yarn(f, ${python(factor)}, base=${python(base)}, original_length=${python(trained)})`,
      attention: ({ factor }) => 0.1 * Math.log(factor) + 1,
    },
    llama3: {
      label: "Llama 3",
      scale: (f, { factor, trained }) => byParts(f, factor, trained, 1, 4),
      call: ({ factor, trained }) =>
        `llama3(f, ${python(factor)}, original_length=${python(trained)}, low_freq_factor=1, high_freq_factor=4)`,
    },
  };

  const extended = ({ scheme, trained, factor }) => (scheme === "plain" ? trained : trained * factor);
  const frequencies = (state) => SCHEMES[state.scheme].scale(plain(state), state);
  const attentionFactor = (state) => SCHEMES[state.scheme].attention?.(state) ?? 1;

  function inPython(state) {
    const { call, attention } = SCHEMES[state.scheme];
    return [
      "import rope_any as ra",
      `f = ra.frequencies(${state.head_dim}, base=${python(state.base)})`,
      ...(call ? [`f = ra.scaling.${call(state)}`] : []),
      ...(attention ? [`attention_factor = ra.scaling.yarn_attention_factor(${python(state.factor)})`] : []),
    ].join("\n");
  }

  // The score of a query and a key whose pairs are all alike, and the bound of RoFormer 3.4.3, at each distance.
  function decay(f, distances) {
    const [score, bound] = [[], []];
    for (const r of distances) {
      let [re, im, sum] = [0, 0, 0]; // S_j = Σ_{i<j} exp(i r f_i)
      for (const x of f) {
        re += Math.cos(r * x);
        im += Math.sin(r * x);
        sum += Math.hypot(re, im);
      }
      score.push([r, re / f.length]);
      bound.push([r, sum / f.length]);
    }
    return { score, bound };
  }

  // --- the setting: a slider runs over an array of stops, the address may hold any value between the limits ----

  const round2 = (x) => Number(x.toPrecision(2));
  const range = (from, to, value) => Array.from({ length: to - from + 1 }, (_, i) => value(from + i));
  const CONTROLS = {
    base: { first: 10_000, limits: [2, 1e12], stops: range(60, 160, (k) => round2(10 ** (k / 20))) },
    head_dim: { first: 128, limits: [2, 1024], step: 2, unit: "features", stops: range(1, 32, (k) => 8 * k) },
    factor: { first: 4, limits: [1, 1e6], unit: "times", stops: [1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 40, 48, 64, 96, 128] },
    trained: { first: 4096, limits: [1, 2 ** 31], step: 1, unit: "tokens", stops: range(7, 18, (k) => 2 ** k) },
    position: {
      first: 1000,
      limits: [0, 2 ** 31 - 1],
      step: 1,
      stops: range(0, 114, (k) => (k <= 20 ? k : round2(20 * 10 ** ((k - 20) / 20)))),
    },
  };
  const FIRST = Object.fromEntries(Object.entries(CONTROLS).map(([name, { first }]) => [name, first]));

  // A setting from what stands behind the # of an address, and a sentence for each value that could not be used.
  function read(hash) {
    const [state, faults] = [{ ...FIRST, scheme: "yarn" }, []];
    for (const [name, text] of new URLSearchParams(hash.replace(/^#/, ""))) {
      const value = text.trim() ? Number(text) : NaN;
      const { limits: [least, most] = [], step = 0 } = CONTROLS[name] ?? {};
      if (name === "scheme" && Object.hasOwn(SCHEMES, text)) state.scheme = text;
      else if (value >= least && value <= most && !(step && value % step)) state[name] = value;
      else if (name === "scheme") faults.push(`scheme must be one of ${Object.keys(SCHEMES).join(", ")}; got ${text}.`);
      else if (Object.hasOwn(CONTROLS, name)) {
        const kind = { 0: "a number", 1: "a whole number", 2: "an even number" }[step];
        faults.push(`${name} must be ${kind} from ${count(least)} to ${count(most)}; got ${text}.`);
      }
    }
    return { state, faults };
  }

  // --- numbers as they are written ----------------------------------------------------------------------------

  const python = (x) => `${x}`.replace(/^\d{5,}/, (whole) => whole.replace(/\B(?=(\d{3})+$)/g, "_"));
  const count = (x) => x.toLocaleString("en", { maximumFractionDigits: x < 1000 ? 3 : 0 }).replaceAll(",", "\u00a0");
  const digits = (x, n = 4) => (Math.abs(x) < 1e4 ? String(Number(x.toPrecision(n))) : count(x));

  // --- drawing ------------------------------------------------------------------------------------------------

  function make(name, attributes = {}, ...children) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  }

  function show(id, label, width, height, ...children) {
    const figure = document.getElementById(id);
    figure.querySelector("svg")?.remove();
    figure.prepend(make("svg", { role: "img", "aria-label": label, viewBox: `0 0 ${width} ${height}` }, ...children));
  }

  const path = (points) => "M" + points.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L");

  function clock(rows, { position }, width) {
    const [middle, radius] = [width / 2, Math.min(width, 340) / 2 - 20];
    const at = (turn, r) => [middle + r * Math.sin(turn), radius + 20 - r * Math.cos(turn)];
    const hands = ([name, f]) =>
      f.flatMap((x, i) => {
        const [cx, cy] = at(position * x, radius * (1 - (0.75 * i) / f.length));
        return [
          make("path", { class: `${name} hand`, d: path([at(0, 0), [cx, cy]]) }),
          make("circle", { class: name, cx, cy, r: 2.5 }),
        ];
      });
    const hours = ["0", "¼", "½ turn", "¾"].map((text, i) => {
      const [x, y] = at((i * Math.PI) / 2, radius + 10);
      return make("text", { x, y: y + 4, "text-anchor": "middle" }, text);
    });
    const face = make("circle", { class: "axis", cx: middle, cy: radius + 20, r: radius });
    const label = `A clock of ${rows[0][1].length} hands at position ${count(position)}; the table below has each angle.`;
    show("ex-clock", label, width, 2 * radius + 40, face, ...hours, ...rows.flatMap(hands));
  }

  function ticks([from, to], log) {
    if (log) {
      const [first, last] = [Math.ceil(Math.log10(from) - 1e-9), Math.floor(Math.log10(to) + 1e-9)];
      const every = Math.ceil((last - first + 1) / 6);
      return range(0, Math.floor((last - first) / every), (k) => 10 ** (first + every * k));
    }
    const rough = (to - from) / 5;
    const step = [1, 2, 5, 10].map((m) => m * 10 ** Math.floor(Math.log10(rough))).find((s) => s >= rough);
    return range(Math.ceil(from / step - 1e-9), Math.floor(to / step + 1e-9), (k) => Number((k * step).toPrecision(6)));
  }

  // One chart: `x` and `y` are { label, domain, log, marks }, marks pairs of a name and a value.
  function chart(id, label, rows, x, y, width) {
    const [left, right, top, bottom, height] = [58, width - 8, 10, 260, 300];
    const scale = ({ domain, log }, from, to) => {
      const [a, b] = log ? domain.map(Math.log10) : domain;
      return (value) => from + (((log ? Math.log10(value) : value) - a) / (b - a)) * (to - from);
    };
    const [X, Y] = [scale(x, left, right), scale(y, bottom, top)];
    const line = (name, points) => make("path", { class: name, d: path(points), "stroke-linejoin": "round" });
    const text = (content, x, y, anchor, more = {}) => make("text", { x, y, "text-anchor": anchor, ...more }, content);
    const parts = [
      ...ticks(x.domain, x.log).flatMap((v) => [
        line("axis", [[X(v), bottom], [X(v), top]]),
        text(count(v), Math.min(X(v), right - 8), bottom + 16, "middle"),
      ]),
      ...ticks(y.domain, y.log).flatMap((v) => [
        line("axis", [[left, Y(v)], [right, Y(v)]]),
        text(count(v), left - 6, Y(v) + 4, "end"),
      ]),
      text(x.label, (left + right) / 2, height - 4, "middle"),
      ...(x.marks ?? []).flatMap(([name, v], i) => [
        line("mark", [[X(v), bottom], [X(v), top]]),
        text(name, X(v) - 4, top + 12 + 15 * i, "end"),
      ]),
      ...(y.marks ?? []).flatMap(([name, v], i) => [
        line("mark", [[left, Y(v)], [right, Y(v)]]),
        text(`${name}: ${count(v)}`, left + 6, Y(v) + (i ? -5 : 14), "start"),
      ]),
      ...rows.map(([name, points]) => line(name, points.map(([a, b]) => [X(a), Y(b)]))),
    ];
    show(id, label, width, height, ...parts);
  }

  // Log-spaced whole distances from 1 on.
  const spaced = (most) => [...new Set(range(0, 240, (k) => Math.round(most ** (k / 240))))];

  function draw(state) {
    const scaled = state.scheme !== "plain";
    const rows = [["plain", plain(state)], ...(scaled ? [["scaled", frequencies(state)]] : [])];
    const marks = [["trained", state.trained], ...(scaled ? [["extended", extended(state)]] : [])];
    const width = document.getElementById("ex-clock").clientWidth;
    const waves = rows.map(([name, f]) => [name, f.map((x, i) => [i, (2 * Math.PI) / x])]);
    const longest = Math.max(extended(state) * 1.5, ...waves.map(([, points]) => points.at(-1)[1]));
    const decays = rows.map(([name, f]) => [name, decay(f, spaced(2 * extended(state)))]);
    const [scores, bounds] = ["score", "bound"].map((key) => decays.map(([name, both]) => [name, both[key]]));
    const lowest = Math.min(...scores.flatMap(([, points]) => points.map(([, y]) => y)));
    const pairs = { label: "pair", domain: [0, Math.max(state.head_dim / 2 - 1, 1)] };
    const distance = { label: "distance (tokens)", domain: [1, 2 * extended(state)], log: true, marks };
    const tokens = { domain: [Math.min(5, state.trained / 1.5), longest], log: true, marks };
    clock(rows, state, width);
    chart("ex-wavelengths", "Wavelength in tokens by pair; the table below has each.", waves, pairs, tokens, width);
    const falls = (what) => `${what} by distance, from 1 to ${count(2 * extended(state))} tokens.`;
    chart("ex-score", falls("Relative score"), scores, distance, { domain: [Math.floor(lowest * 5) / 5, 1] }, width);
    chart("ex-bound", falls("Bound"), bounds, distance, { domain: [0, (state.head_dim / 2 + 1) / 2] }, width);
  }

  function table(state) {
    const [f, scaled, { position }] = [plain(state), frequencies(state), state];
    const head = ["pair", "frequency (radians per token)", "wavelength (tokens)", "times slower", "angle (turns)"];
    const turns = (x) => (((position * x) / (2 * Math.PI)) % 1).toFixed(4);
    const rows = scaled.map((x, i) => [i, digits(x), digits((2 * Math.PI) / x), digits(f[i] / x), turns(x)]);
    const row = (kind) => (cells) => `<tr>${cells.map((cell) => `<${kind}>${cell}</${kind}>`).join("")}</tr>`;
    return `<thead>${row("th")(head)}</thead><tbody>${rows.map(row("td")).join("")}</tbody>`;
  }

  function summary(state) {
    const open = (f) => count(f.filter((x) => 2 * Math.PI > x * state.trained).length);
    const said = [`Within the trained ${count(state.trained)} tokens ${open(plain(state))} of ${state.head_dim / 2} pairs`];
    said.push(" don't come round");
    if (state.scheme !== "plain") said.push(`, with ${SCHEMES[state.scheme].label} ${open(frequencies(state))}`);
    if (attentionFactor(state) !== 1) said.push(`; the attention factor is ${digits(attentionFactor(state))}`);
    return said.join("") + ".";
  }

  // --- the page ------------------------------------------------------------------------------------------------

  const form = document.getElementById("rope-explorer");
  const part = (selector) => form.querySelector(selector);
  let { state, faults } = read(location.hash);
  let [moved, later] = [false];

  // Move the sliders to the stops nearest the setting, write its values beside them, and draw it.
  function render() {
    for (const [name, { stops, unit = "" }] of Object.entries(CONTROLS)) {
      const input = form.elements[name];
      const said = `${count(state[name])} ${unit}`.trim();
      const near = (k) => Math.abs(Math.log1p(stops[k]) - Math.log1p(state[name]));
      input.max = stops.length - 1;
      input.value = stops.reduce((best, _, k) => (near(k) < near(best) ? k : best), 0);
      input.setAttribute("aria-valuetext", said);
      input.nextElementSibling.value = said;
    }
    form.elements.scheme.value = state.scheme;
    form.elements.factor.disabled = state.scheme === "plain";
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
    if (moved) history.replaceState(null, "", `#${new URLSearchParams(state)}`);
  }

  function change(values) {
    state = { ...state, ...values };
    faults = [];
    moved = true;
    render();
  }

  form.elements.scheme.append(...Object.entries(SCHEMES).map(([name, { label }]) => new Option(label, name)));
  form.addEventListener("input", ({ target: { name, value } }) =>
    change({ [name]: name === "scheme" ? value : CONTROLS[name].stops[value] }),
  );
  part("figcaption").addEventListener("click", ({ target: { value } }) => {
    if (value) change({ position: Math.max(state.position + Number(value), 0) });
  });
  part("#ex-copy").addEventListener("click", async ({ target }) => {
    getSelection().selectAllChildren(part("#ex-python")); // where a browser keeps the clipboard to itself
    await navigator.clipboard?.writeText(inPython(state));
    target.textContent = "copied";
    setTimeout(() => (target.textContent = "copy"), 2000);
  });
  part("details").addEventListener("toggle", render);
  addEventListener("hashchange", () => {
    if (location.hash.includes("=")) ({ state, faults } = read(location.hash)); // else it names a heading
    render();
  });
  form.previousElementSibling.hidden = true; // which says that it needs this script
  form.hidden = false;
  addEventListener("resize", () => draw(state));
  render();

  globalThis.ropeExplorer = { frequencies, attentionFactor, decay, inPython }; // for the tests, and the curious
}
