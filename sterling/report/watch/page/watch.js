"use strict";
// The page of runs: a table, curves of the runs that are ticked, a page per run, a comparison.
// All words from runs are put into the page as text, never as HTML.

const POLL_MILLISECONDS = 2000;
const COLOURS = 8;
const main = document.getElementById("main");
const isStatic = Boolean(window.sterlingData);
const state = { runs: [], root: "", ticked: new Map(), filter: "", metric: "", x: "progress", eachSeed: false, sort: "started", up: false };
const cache = new Map(); // run + column -> points
let view = null; // {route, update()}

// --- where the data comes from: the server, or scripts beside the page -------------------------

const live = {
  async runs() { return fetchJson("api/runs"); },
  async points(run, column, old) {
    const asked = new URLSearchParams({ run: run.name, column, generation: old ? old.generation : -1, after: old ? old.changes_from : 0 });
    return fetchJson(`api/points?${asked}`);
  },
  async details(run) { return fetchJson(`api/details?${new URLSearchParams({ run: run.name })}`); },
  async compare(names) { return (await fetchJson(`api/compare?${new URLSearchParams({ runs: JSON.stringify(names) })}`)).text; },
  file(run, name) { return `files/${encodeURIComponent(run.name)}/${encodeURIComponent(name)}`; },
};

const stored = {
  async runs() { return window.sterlingData.runs; },
  async points(run, column) { return (await this.load(run)).points[column] || { generation: 0, after: 0, kept: 0, changes_from: 0, rows: 0, x: [], seconds: [], seeds: [], mean: [], low: [], high: [] }; },
  async details(run) { return (await this.load(run)).details; },
  async compare() { return window.sterlingData.runs.compare; },
  file(run, name) { return `files/${this.number(run)}/${encodeURIComponent(name)}`; },
  number(run) { return window.sterlingData.runs.runs.findIndex((each) => each.name === run.name); },
  async load(run) {
    const number = this.number(run);
    if (!window.sterlingData[number]) {
      await new Promise((resolve, reject) => {
        const script = document.createElement("script");
        script.src = `data/${number}.js`;
        script.onload = resolve;
        script.onerror = () => reject(new Error(`data/${number}.js is missing`));
        document.head.append(script);
      });
    }
    return window.sterlingData[number];
  },
};

const source = isStatic ? stored : live;

async function fetchJson(place) {
  const answer = await fetch(place);
  if (!answer.ok) throw new Error(`${place.split("?")[0]}: ${answer.status}`);
  return answer.json();
}

async function pointsOf(run, column) {
  const key = `${run.name}\n${column}`, old = cache.get(key);
  if (old && old.generation === run.generation && old.rows >= run.rows) return old;
  const more = await source.points(run, column, old);
  const names = ["x", "seconds", "mean", "low", "high"];
  const goesOn = old && more.generation === old.generation && more.after === old.changes_from && more.after > 0;
  const joined = (before, after) => before.slice(0, more.kept).concat(after || []);
  const whole = { generation: more.generation, rows: more.rows, changes_from: more.changes_from };
  for (const name of names) whole[name] = goesOn ? joined(old[name], more[name]) : more[name];
  whole.seeds = goesOn && old.seeds.length ? old.seeds.map((seed, i) => joined(seed, more.seeds[i])) : more.seeds;
  cache.set(key, whole);
  return whole;
}

// --- small tools ------------------------------------------------------------------------------

function el(tag, properties, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties || {})) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name in made && name !== "list") made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function setText(node, words) {
  if (node.textContent !== words) node.textContent = words;
}

function ago(seconds) {
  if (!seconds) return "-";
  const passed = Math.max(0, Date.now() / 1000 - seconds);
  for (const [size, name] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
    if (passed >= size) return `${Math.floor(passed / size)} ${name} ago`;
  }
  return `${Math.floor(passed)} s ago`;
}

function grouped(number) {
  return number === null || number === undefined ? "-" : Math.round(number).toLocaleString("en-US");
}

// Slow runs too have a speed: 0.055, 9.4, 4,447.
function speedText(run) {
  if (!run.speed) return "-";
  return `${run.speed >= 100 ? grouped(run.speed) : Number(run.speed.toPrecision(2))} ${run.speed_unit}/s`;
}

// The final evaluation's value of a metric; null if there is none.
function finalOf(run, metric) {
  return run.finals[metric.replace(/^(evaluation|data)\//, "")] || null;
}

function valueText(value) {
  if (Array.isArray(value) || (value && typeof value === "object")) return JSON.stringify(value);
  return value === null || value === undefined || value === "" ? "-" : String(value);
}

function averageText(value) {
  if (!Array.isArray(value)) return typeof value === "number" ? shortNumber(value) : valueText(value);
  const known = value.filter((x) => typeof x === "number");
  return known.length ? shortNumber(known.reduce((a, b) => a + b, 0) / known.length) : "-";
}

function colourOf(run) {
  const at = state.ticked.get(run.name);
  return at === undefined ? "transparent" : `var(--c${at % COLOURS})`;
}

function tick(name, on) {
  if (!on) state.ticked.delete(name);
  else if (!state.ticked.has(name)) {
    const used = new Set(state.ticked.values());
    let at = 0;
    while (used.has(at)) at += 1;
    state.ticked.set(name, at);
  }
  remember();
}

function remember() {
  try { localStorage.setItem(`ticked ${state.root}`, JSON.stringify([...state.ticked.keys()])); } catch { /* not stored */ }
}

function recall() {
  let names = null;
  try { names = JSON.parse(localStorage.getItem(`ticked ${state.root}`)); } catch { names = null; }
  const known = new Set(state.runs.map((run) => run.name));
  const chosen = Array.isArray(names) ? names.filter((name) => known.has(name)) : [];
  const newest = [...state.runs].sort((a, b) => (b.state === "running") - (a.state === "running") || b.started - a.started);
  for (const name of chosen.length ? chosen : newest.slice(0, 4).map((run) => run.name)) tick(name, true);
}

function tickedRuns() {
  return state.runs.filter((run) => state.ticked.has(run.name));
}

function metricOptions(runs) {
  const names = [...new Set(runs.flatMap((run) => run.columns))].sort();
  const returns = ["return", "evaluation/return", "data/return"].filter((name) => names.includes(name));
  return [...returns, ...names.filter((name) => !returns.includes(name))];
}

function xLabel(runs) {
  if (state.x === "seconds") return "seconds since the run began";
  const units = new Set(runs.map((run) => run.unit));
  return units.size === 1 && units.has("updates") ? "gradient updates per seed" : units.size > 1 ? "steps or updates per seed" : "environment steps per seed";
}

// --- a chart with its tools -------------------------------------------------------------------

function placeText(one, at) {
  return state.x === "seconds" ? `${shortNumber(one.x[at])} s` : `${grouped(one.x[at])} ${one.unit}`;
}

class ChartPanel {
  constructor(runsOf) {
    this.runsOf = runsOf;
    this.metric = el("select", { id: "metric", onchange: () => { state.metric = this.metric.value; this.update(); } });
    this.x = el("select", { id: "x", onchange: () => { state.x = this.x.value; this.update(); } },
      el("option", { value: "progress" }, "steps"), el("option", { value: "seconds" }, "time"));
    this.each = el("input", { type: "checkbox", id: "each", checked: state.eachSeed, onchange: () => { state.eachSeed = this.each.checked; this.update(); } });
    this.tools = [el("label", {}, "metric ", this.metric), el("label", {}, "over ", this.x), el("label", {}, this.each, " each seed")];
    this.host = el("div", { className: "panels", id: "chart" }, el("div", { className: "chart" })); // room for the first panel
    this.x.value = state.x;
    this.drawn = "";
    this.turn = 0;
  }

  async update(force = false) {
    const runs = this.runsOf(), names = metricOptions(runs.length ? runs : state.runs);
    if (!names.includes(state.metric)) state.metric = names[0] || "";
    if ([...this.metric.options].map((o) => o.value).join() !== names.join()) {
      this.metric.replaceChildren(...names.map((name) => el("option", { value: name }, name)));
    }
    this.metric.value = state.metric;
    const turn = ++this.turn;
    const found = await Promise.all(runs.map((run) => pointsOf(run, state.metric).catch(() => null)));
    if (turn !== this.turn) return; // a later call has drawn already
    const series = runs.map((run, i) => found[i] && this.series(run, found[i])).filter(Boolean);
    const mark = JSON.stringify([series.map((one) => [one.name, one.rows, one.generation, one.colour, one.panel, one.final]), state.metric, state.x, state.eachSeed, this.host.clientWidth]);
    if (mark === this.drawn && !force) return;
    this.drawn = mark;
    this.draw(runs, series);
  }

  series(run, points) {
    const final = finalOf(run, state.metric);
    return { name: run.name, panel: run.panel, unit: run.unit, colour: colourOf(run) === "transparent" ? "var(--c0)" : colourOf(run),
      ...points, x: points[state.x === "seconds" ? "seconds" : "x"],
      final: final && { ...final, x: state.x === "seconds" ? run.seconds : run.progress } };
  }

  // One panel for each environment: returns of different environments have no axis in common.
  draw(runs, series) {
    const names = [...new Set(series.map((one) => one.panel))];
    const panels = (names.length ? names : [""]).map((name) => {
      const title = el("h2", {}, name), host = el("div", { className: "chart" }), legend = el("ul", { className: "legend" });
      return { name, host, legend, box: el("section", { className: "panel" }, title, host, legend) };
    });
    this.host.replaceChildren(...panels.map((panel) => panel.box));
    for (const panel of panels) {
      const own = series.filter((one) => one.panel === panel.name);
      const label = xLabel(runs.filter((run) => run.panel === panel.name));
      const cut = drawChart(panel.host, own, { xLabel: label, yLabel: state.metric || "metric", eachSeed: state.eachSeed });
      panel.legend.replaceChildren(...own.map((one) => this.entry(one, cut.has(one.name))));
    }
  }

  // What the diamond and the end of the line show: they are different evaluations.
  entry(one, isCut) {
    const mark = el("span", { className: "swatch" });
    mark.style.background = one.colour;
    const words = [];
    if (one.final) words.push(`\u25c6 final evaluation ${one.final.text}`);
    const at = one.mean.findLastIndex((y) => y !== null);
    if (at >= 0) words.push(`line ends with ${intervalText(one, at)} at ${placeText(one, at)}`);
    else if (!one.final) words.push("no mean yet");
    const seeds = one.seeds.length;
    if (seeds) words.push(`${seeds} seed${seeds === 1 ? "" : "s"}`);
    if (isCut) words.push("its interval goes beyond the picture");
    return el("li", {}, mark, el("a", { href: `#/run/${encodeURIComponent(one.name)}` }, one.name),
      el("span", { className: "faint" }, ` ${words.join("; ")}`));
  }
}

// --- the table of runs ------------------------------------------------------------------------

const COLUMNS = [
  ["run", "name", (run) => run.name],
  ["algorithm", "algorithm", (run) => run.algorithm],
  ["environment", "environment", (run) => run.environment],
  ["seeds", "seeds", (run) => run.seeds.length],
  ["progress", "progress", (run) => run.progress / Math.max(run.budget, 1)],
  ["return", "return", (run) => (run.return && run.return.value !== null ? run.return.value : -Infinity)],
  ["speed", "speed", (run) => run.speed || 0],
  ["state", "state", (run) => run.state],
  ["began", "started", (run) => run.started || 0],
];

class TableView {
  constructor() {
    this.panel = new ChartPanel(tickedRuns);
    this.filter = el("input", { type: "search", id: "filter", placeholder: "filter: ppo running", value: state.filter,
      oninput: () => { state.filter = this.filter.value; this.update(); } });
    this.compare = el("button", { type: "button", id: "compare", onclick: () => { location.hash = "#/compare"; } }, "compare");
    const all = el("button", { type: "button", id: "all", onclick: () => { this.shown().forEach((run) => tick(run.name, true)); this.update(); } }, "tick all shown");
    const none = el("button", { type: "button", id: "none", onclick: () => { state.ticked.clear(); remember(); this.update(); } }, "tick none");
    this.heads = COLUMNS.map(([title, key]) => el("th", { className: ["seeds", "speed"].includes(title) ? "n" : "" },
      el("button", { type: "button", onclick: () => this.sortBy(key) }, title)));
    this.body = el("tbody");
    this.lines = new Map();
    this.count = el("span", { className: "faint", id: "count" });
    main.replaceChildren(
      el("div", { className: "tools" }, ...this.panel.tools), this.panel.host,
      el("div", { className: "tools" }, this.filter, all, none, this.compare, this.count),
      el("div", { className: "wide" }, el("table", { id: "runs" }, el("thead", {}, el("tr", {}, el("th"), ...this.heads)), this.body)));
  }

  sortBy(key) {
    state.up = state.sort === key ? !state.up : !["return", "speed", "started", "progress"].includes(key);
    state.sort = key;
    this.update();
  }

  shown() {
    const words = state.filter.toLowerCase().split(/\s+/).filter(Boolean);
    const value = COLUMNS.find(([, key]) => key === state.sort)[2], sign = state.up ? 1 : -1;
    const fits = (run) => {
      const text = `${run.name} ${run.algorithm} ${run.environment} ${run.state}`.toLowerCase();
      return words.every((word) => text.includes(word));
    };
    return state.runs.filter(fits).sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      return x === y ? a.name.localeCompare(b.name) : sign * (x < y ? -1 : 1);
    });
  }

  update(force = false) {
    COLUMNS.forEach(([, key], i) => {
      if (state.sort === key) this.heads[i].setAttribute("aria-sort", state.up ? "ascending" : "descending");
      else this.heads[i].removeAttribute("aria-sort");
    });
    const rows = this.shown().map((run) => this.line(run));
    const same = rows.length === this.body.children.length && rows.every((row, i) => row === this.body.children[i]);
    if (!same) this.body.replaceChildren(...rows);
    setText(this.count, `${rows.length} of ${state.runs.length} runs`);
    this.compare.disabled = state.ticked.size < 2;
    setText(this.compare, state.ticked.size < 2 ? "compare" : `compare ${state.ticked.size}`);
    this.panel.update(force);
  }

  line(run) {
    let line = this.lines.get(run.name);
    if (!line) {
      line = this.newLine(run);
      this.lines.set(run.name, line);
    }
    line.fill(run);
    return line.row;
  }

  newLine(run) {
    const box = el("input", { type: "checkbox", "aria-label": `tick ${run.name}`, onchange: () => { tick(run.name, box.checked); this.update(); } });
    const mark = el("span", { className: "swatch" });
    const cells = COLUMNS.map(([title]) => el("td", { className: ["seeds", "speed"].includes(title) ? "n" : "" }));
    cells[0].append(mark, el("a", { href: `#/run/${encodeURIComponent(run.name)}` }, run.name));
    const fillBar = el("i"), words = el("span");
    cells[4].append(el("span", { className: "bar" }, fillBar), words);
    const returned = el("span"), origin = el("span", { className: "origin" });
    cells[5].append(returned, origin);
    const stateWord = el("span");
    cells[7].append(stateWord);
    const fill = (now) => {
      box.checked = state.ticked.has(now.name);
      mark.style.background = colourOf(now);
      [["algorithm", 1], ["environment", 2]].forEach(([name, at]) => setText(cells[at], now[name]));
      setText(cells[3], now.failed.length ? `${now.seeds.length} (${now.failed.length} failed)` : String(now.seeds.length));
      fillBar.style.width = `${100 * Math.min(1, now.progress / Math.max(now.budget, 1))}%`;
      setText(words, `${grouped(now.progress)} / ${grouped(now.budget)} ${now.unit}`);
      setText(returned, now.return ? now.return.text : "-");
      setText(origin, now.return ? now.return.from : "");
      setText(cells[6], speedText(now));
      setText(stateWord, now.state);
      stateWord.className = `state ${now.state}`;
      setText(cells[8], ago(now.started));
    };
    return { row: el("tr", {}, el("td", {}, box), ...cells), fill };
  }
}

// --- the page of one run ----------------------------------------------------------------------

class RunView {
  constructor(name) {
    this.name = name;
    this.panel = new ChartPanel(() => state.runs.filter((run) => run.name === this.name));
    this.facts = el("dl", { className: "facts" });
    this.warnings = el("div");
    this.media = el("div", { className: "media" });
    this.settings = el("tbody");
    this.episodes = el("pre", { id: "episodes" });
    this.command = el("span");
    this.log = el("table", { className: "plain", id: "log" });
    this.about = el("dl", { className: "facts" });
    this.read = "";
    main.replaceChildren(el("h1", {}, name), this.facts, this.warnings,
      el("div", { className: "tools" }, ...this.panel.tools), this.panel.host,
      el("h2", {}, "Films and pictures"), this.media,
      el("h2", {}, "Episodes of the last evaluation"), this.episodes, el("p", { className: "faint" }, this.command),
      el("h2", {}, "Settings"), el("div", { className: "wide" }, el("table", { className: "plain", id: "settings" }, this.settings)),
      el("h2", {}, "Log, newest first (means over seeds)"), el("div", { className: "wide" }, this.log),
      el("h2", {}, "Made by"), this.about);
  }

  async update(force = false) {
    const run = state.runs.find((each) => each.name === this.name);
    if (!run) {
      main.replaceChildren(el("p", {}, `There is no run ${this.name} in this folder. `, el("a", { href: "#/" }, "All runs")));
      return;
    }
    const facts = [["state", run.state], ["algorithm", run.algorithm], ["environment", run.environment],
      ["seeds", run.seeds.join(", ") + (run.failed.length ? ` (failed: ${run.failed.join(", ")})` : "")],
      ["progress", `${grouped(run.progress)} of ${grouped(run.budget)} ${run.unit} per seed`],
      ["return", run.return ? `${run.return.text} (${run.return.from})` : "-"],
      ["speed", speedText(run)], ["began", ago(run.started)], ["last written", ago(run.changed)]];
    fillFacts(this.facts, facts);
    this.facts.children[1].className = `state ${run.state}`;
    this.panel.update(force);
    const mark = JSON.stringify([run.rows, run.generation, run.state, run.problems]);
    if (mark === this.read) return;
    this.read = mark;
    const found = await source.details(run);
    this.show(run, found);
  }

  show(run, found) {
    const words = [...run.problems, ...found.warnings];
    const list = el("ul", {}, ...words.map((each) => el("li", {}, each)));
    this.warnings.replaceChildren(...(words.length ? [el("div", { className: "cautions" }, list)] : []));
    const shownFiles = JSON.stringify([found.films, found.pictures]);
    if (shownFiles !== this.files) { // a film that plays is not begun anew
      this.files = shownFiles;
      const films = found.films.map((name) => figure(name, name.endsWith(".gif")
        ? el("img", { src: source.file(run, name), alt: name, className: "film" }) : el("video", { src: source.file(run, name), controls: true, muted: true, preload: "metadata" })));
      const pictures = found.pictures.map((name) => figure(name, el("img", { src: source.file(run, name), alt: name })));
      this.media.replaceChildren(...films, ...pictures);
      if (!films.length) this.media.prepend(el("p", { className: "faint" }, "No films yet: `sterling play RUN` or `sterling show RUN --worst 3 --film RUN` make some."));
    }
    setText(this.episodes, found.episodes || "no evaluation yet");
    setText(this.command, `Steps, actions and films: sterling show ${state.root}/${run.name} --worst 3 --best 3`);
    const rows = Object.entries(found.settings).map(([name, value]) => el("tr", {}, el("td", {}, name), el("td", { className: "wrap" }, valueText(value))));
    this.settings.replaceChildren(...rows);
    const names = [...new Set(found.log.flatMap((row) => Object.keys(row)))];
    const head = el("thead", {}, el("tr", {}, ...names.map((name) => el("th", { className: "n" }, ...breakable(name)))));
    const lines = [...found.log].reverse().map((row) => el("tr", {}, ...names.map((name) => el("td", { className: "n" }, averageText(row[name])))));
    this.log.replaceChildren(head, el("tbody", {}, ...lines));
    fillFacts(this.about, Object.entries(found.about).map(([name, value]) => [name, valueText(value)]));
  }
}

// A metric's name that may continue on a new line after each slash or underscore.
function breakable(name) {
  return name.split(/(?<=[/_])/).flatMap((part) => [part, el("wbr")]);
}

function figure(name, inside) {
  return el("figure", {}, inside, el("figcaption", {}, name));
}

function fillFacts(list, facts) {
  if (list.children.length !== 2 * facts.length) {
    list.replaceChildren(...facts.flatMap(([name]) => [el("dt", {}, name), el("dd")]));
  }
  facts.forEach(([, value], i) => setText(list.children[2 * i + 1], value));
}

// --- the comparison of ticked runs ------------------------------------------------------------

class CompareView {
  constructor() {
    this.panel = new ChartPanel(tickedRuns);
    this.every = el("input", { type: "checkbox", id: "every", onchange: () => this.fill() });
    this.table = el("table", { className: "plain", id: "differences" });
    this.verdict = el("div");
    this.ask = el("button", { type: "button", id: "verdict", onclick: () => this.askVerdict() }, "compare their results");
    const word = isStatic ? "What `sterling compare` said about all runs of this page when it was written." : "What `sterling compare` says about the ticked runs.";
    main.replaceChildren(el("h1", {}, "Comparison"), el("div", { className: "tools" }, ...this.panel.tools), this.panel.host,
      el("h2", {}, "Results"), el("p", { className: "faint" }, word), this.ask, this.verdict,
      el("h2", {}, "Settings that differ"), el("div", { className: "tools" }, el("label", {}, this.every, " show equal settings too")),
      el("div", { className: "wide" }, this.table));
    this.names = "";
  }

  async update(force = false) {
    this.panel.update(force);
    const runs = tickedRuns(), names = runs.map((run) => run.name).join("\n");
    if (names === this.names) return;
    this.names = names;
    this.verdict.replaceChildren();
    const found = await Promise.all(runs.map((run) => source.details(run)));
    this.settings = found.map((each) => each.settings);
    this.runs = runs;
    this.fill();
  }

  fill() {
    const names = [...new Set(this.settings.flatMap((each) => Object.keys(each)))];
    const differs = (name) => new Set(this.settings.map((each) => valueText(each[name]))).size > 1;
    const shown = names.filter((name) => this.every.checked || differs(name));
    const head = el("thead", {}, el("tr", {}, el("th", {}, "setting"), ...this.runs.map((run) => el("th", {}, run.name))));
    const rows = shown.map((name) => el("tr", { className: this.every.checked && differs(name) ? "differs" : "" }, el("td", {}, name),
      ...this.settings.map((each) => el("td", { className: "wrap" }, valueText(each[name])))));
    const nothing = el("tr", {}, el("td", { colSpan: this.runs.length + 1 }, "All settings are equal."));
    this.table.replaceChildren(head, el("tbody", {}, ...(rows.length ? rows : [nothing])));
  }

  async askVerdict() {
    this.ask.disabled = true;
    this.verdict.replaceChildren(el("p", { className: "faint" }, "comparing ..."));
    try {
      const words = await source.compare(tickedRuns().map((run) => run.name));
      this.verdict.replaceChildren(el("pre", { id: "words" }, words));
    } catch (error) {
      this.verdict.replaceChildren(el("p", { className: "failed" }, `not compared: ${error.message}`));
    }
    this.ask.disabled = false;
  }
}

// --- going round ------------------------------------------------------------------------------

function showRoute() {
  const route = location.hash || "#/";
  if (view && view.route === route) return;
  const run = route.match(/^#\/run\/(.+)$/);
  view = run ? new RunView(decodeURIComponent(run[1])) : route === "#/compare" ? new CompareView() : new TableView();
  view.route = route;
  view.update();
}

async function poll() {
  const status = document.getElementById("status");
  try {
    const found = await source.runs();
    const isFirst = !state.root;
    state.runs = found.runs;
    state.root = found.root;
    setText(document.getElementById("root"), found.root);
    if (isFirst) recall();
    if (!found.runs.length) main.replaceChildren(el("p", {}, "No runs yet. They appear here as soon as they begin."));
    else if (view) await view.update();
    else showRoute();
    if (!found.runs.length) view = null;
    const running = found.runs.filter((each) => each.state === "running").length;
    setText(status, isStatic ? "written once" : `${running} running`);
  } catch (error) {
    setText(status, `not connected (${error.message})`);
  }
  if (!isStatic) setTimeout(poll, document.hidden ? 5 * POLL_MILLISECONDS : POLL_MILLISECONDS);
}

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  setText(document.getElementById("theme"), name === "dark" ? "light" : "dark");
  try { localStorage.setItem("theme", name); } catch { /* not stored */ }
}

let theme = null;
try { theme = localStorage.getItem("theme"); } catch { theme = null; }
setTheme(theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
document.getElementById("theme").addEventListener("click", () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
window.addEventListener("hashchange", showRoute);
window.addEventListener("resize", () => view && view.update(true));
poll();
