"use strict";
// Draw curves with intervals as SVG. Nothing is loaded from elsewhere.

const SVG = "http://www.w3.org/2000/svg";
const MARGIN = { left: 74, right: 22, top: 14, bottom: 44 };

function svg(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// Steps between ticks: 1, 2 or 5 times a power of ten, about `wanted` of them.
function niceTicks(low, high, wanted) {
  const span = high - low || 1;
  const rough = span / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * span; i++) ticks.push(i * step);
  return ticks;
}

function shortNumber(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "-";
  const size = Math.abs(value);
  for (const [unit, name] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (size >= unit) return `${Number((value / unit).toPrecision(4))}${name}`;
  }
  if (size !== 0 && size < 1e-4) return value.toExponential(2);
  return String(Number(value.toPrecision(4)));
}

function extent(lists) {
  let low = Infinity, high = -Infinity;
  for (const list of lists) {
    for (const value of list) {
      if (value === null || value === undefined) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  return low <= high ? [low, high] : null;
}

function linePath(xs, ys, toX, toY) {
  let path = "", pen = "M";
  for (let i = 0; i < xs.length; i++) {
    if (xs[i] === null || ys[i] === null || ys[i] === undefined) continue;
    path += `${pen}${toX(xs[i]).toFixed(1)} ${toY(ys[i]).toFixed(1)}`;
    pen = "L";
  }
  return path;
}

// The area between low and high; rows without an interval divide it.
function bandPath(xs, low, high, toX, toY) {
  let path = "", run = [];
  const close = () => {
    if (run.length > 1) {
      const there = run.map((i) => `${toX(xs[i]).toFixed(1)} ${toY(low[i]).toFixed(1)}`);
      const back = run.map((i) => `${toX(xs[i]).toFixed(1)} ${toY(high[i]).toFixed(1)}`).reverse();
      path += `M${there.join("L")}L${back.join("L")}Z`;
    }
    run = [];
  };
  for (let i = 0; i < xs.length; i++) {
    if (low[i] === null || high[i] === null || xs[i] === null) close();
    else run.push(i);
  }
  close();
  return path;
}

// The range of the axis: that of the lines and final evaluations. Their intervals may add a quarter
// of it on either side; those of two seeds can be so wide that no curve would be seen.
function valueRange(series, eachSeed) {
  const shown = extent(series.flatMap((one) => [one.mean, one.final ? [one.final.value] : [],
    ...(eachSeed || isSeedsOnly(one) ? one.seeds : [])]));
  if (!shown) return null;
  const whole = extent([shown, ...series.flatMap((one) => [one.low, one.high, one.final ? [one.final.low, one.final.high] : []])]);
  const room = 0.25 * (shown[1] - shown[0] || Math.abs(shown[1]) || 1);
  const [low, high] = [Math.max(whole[0], shown[0] - room), Math.min(whole[1], shown[1] + room)];
  const pad = (high - low) * 0.04 || Math.abs(high) * 0.05 || 1;
  return [low - pad, high + pad];
}

function isSeedsOnly(one) {
  return one.mean.every((y) => y === null);
}

function isCut(one, [low, high]) {
  const ends = extent([one.low, one.high, one.final ? [one.final.low, one.final.high] : []]);
  return ends !== null && (ends[0] < low || ends[1] > high);
}

// Draw `series` into `host`: [{name, colour, x, mean, low, high, seeds, final}], x ascending; `final`
// is the final evaluation {x, value, low, high} or null. `how`: {xLabel, yLabel, eachSeed}.
// Returns the names of the series whose intervals do not fit into the picture.
function drawChart(host, series, how) {
  const width = Math.max(host.clientWidth, 240), height = Math.max(host.clientHeight, 200);
  const xs = extent(series.flatMap((one) => [one.x, one.final ? [one.final.x] : []]));
  const ys = valueRange(series, how.eachSeed);
  const plot = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${how.yLabel} over ${how.xLabel}` });
  const right = width - MARGIN.right, bottom = height - MARGIN.bottom;
  const middle = (MARGIN.left + right) / 2;
  plot.append(svg("text", { x: middle, y: height - 8, "text-anchor": "middle", class: "title" }, how.xLabel));
  const turned = `rotate(-90 16 ${(MARGIN.top + bottom) / 2})`;
  plot.append(svg("text", { x: 16, y: (MARGIN.top + bottom) / 2, "text-anchor": "middle", transform: turned, class: "title" }, how.yLabel));
  if (!xs || !ys) {
    const words = series.length ? "no values of this metric yet" : "tick runs to draw their curves";
    plot.append(svg("text", { x: middle, y: bottom / 2, "text-anchor": "middle" }, words));
    host.replaceChildren(plot);
    return new Set();
  }
  const [y0, y1] = ys, x0 = Math.min(xs[0], 0), x1 = xs[1] > x0 ? xs[1] : x0 + 1;
  const toX = (x) => MARGIN.left + ((x - x0) / (x1 - x0)) * (right - MARGIN.left);
  const toY = (y) => bottom - ((y - y0) / (y1 - y0)) * (bottom - MARGIN.top);
  drawAxes(plot, { xs: [x0, x1], ys, toX, toY, right, bottom, width });
  const clip = `clip-${++clips}`;
  plot.append(svg("clipPath", { id: clip }, svg("rect", { x: MARGIN.left, y: MARGIN.top, width: right - MARGIN.left + MARGIN.right, height: bottom - MARGIN.top })));
  for (const one of series) drawSeries(plot, one, how, { toX, toY, clip });
  const hint = document.createElement("div");
  hint.className = "hint";
  host.replaceChildren(plot, hint);
  addHint(plot, hint, series, { toX, bottom, right, x0, x1 });
  return new Set(series.filter((one) => isCut(one, ys)).map((one) => one.name));
}

let clips = 0; // areas of drawing on the page so far: each has a name of its own

function drawAxes(plot, { xs, ys, toX, toY, right, bottom, width }) {
  for (const y of niceTicks(ys[0], ys[1], 6)) {
    plot.append(svg("line", { x1: MARGIN.left, x2: right, y1: toY(y), y2: toY(y), class: "grid" }));
    plot.append(svg("text", { x: MARGIN.left - 8, y: toY(y) + 4, "text-anchor": "end" }, shortNumber(y)));
  }
  for (const x of niceTicks(xs[0], xs[1], Math.max(2, Math.floor(width / 130)))) {
    plot.append(svg("line", { x1: toX(x), x2: toX(x), y1: bottom, y2: bottom + 5, class: "grid" }));
    plot.append(svg("text", { x: toX(x), y: bottom + 18, "text-anchor": "middle" }, shortNumber(x)));
  }
  plot.append(svg("line", { x1: MARGIN.left, x2: right, y1: bottom, y2: bottom, class: "grid" }));
}

function drawSeries(plot, one, how, { toX, toY, clip }) {
  const group = svg("g", { "data-run": one.name, "clip-path": `url(#${clip})` });
  group.append(svg("path", { d: bandPath(one.x, one.low, one.high, toX, toY), fill: one.colour, opacity: 0.17, class: "band" }));
  if (how.eachSeed || isSeedsOnly(one)) {
    for (const seed of one.seeds) {
      group.append(svg("path", { d: linePath(one.x, seed, toX, toY), fill: "none", stroke: one.colour, "stroke-width": 0.9, opacity: 0.55, class: "seed" }));
    }
  }
  group.append(svg("path", { d: linePath(one.x, one.mean, toX, toY), fill: "none", stroke: one.colour, "stroke-width": 2, "stroke-linejoin": "round", class: "mean" }));
  const known = one.mean.map((y, i) => i).filter((i) => one.mean[i] !== null && one.x[i] !== null);
  if (known.length === 1) group.append(svg("circle", { cx: toX(one.x[known[0]]), cy: toY(one.mean[known[0]]), r: 3.5, fill: one.colour }));
  if (one.final && one.final.value !== null && Number.isFinite(one.final.x)) group.append(...finalMark(one, toX(one.final.x), toY));
  plot.append(group);
}

// The final evaluation: a diamond with its interval, where the run ends.
function finalMark(one, x, toY) {
  const y = toY(one.final.value), size = 6;
  const diamond = svg("path", { d: `M${x} ${y - size}L${x + size} ${y}L${x} ${y + size}L${x - size} ${y}Z`, fill: one.colour, class: "final" });
  diamond.append(svg("title", {}, `${one.name}: final evaluation ${one.final.text}`));
  if (one.final.low === null || one.final.high === null) return [diamond];
  const ends = { x1: x, x2: x, y1: toY(one.final.low), y2: toY(one.final.high), stroke: one.colour, "stroke-width": 1.6, class: "final-interval" };
  return [svg("line", ends), diamond];
}

// A point of the line with its interval, in words.
function intervalText(one, at) {
  const ends = one.low[at] === null ? "" : ` [${shortNumber(one.low[at])}, ${shortNumber(one.high[at])}]`;
  return `${shortNumber(one.mean[at])}${ends}`;
}

// Show the values nearest to the pointer.
function addHint(plot, hint, series, space) {
  const line = svg("line", { y1: MARGIN.top, y2: space.bottom, class: "grid", visibility: "hidden" });
  plot.append(line);
  plot.addEventListener("pointerleave", () => { hint.style.visibility = "hidden"; line.setAttribute("visibility", "hidden"); });
  plot.addEventListener("pointermove", (event) => {
    const box = plot.getBoundingClientRect(), at = event.clientX - box.left;
    const x = space.x0 + ((at - MARGIN.left) / (space.right - MARGIN.left)) * (space.x1 - space.x0);
    const rows = [];
    for (const one of series) {
      const i = nearest(one.x, one.mean, x);
      if (i === null) continue;
      const row = document.createElement("div"), mark = document.createElement("span");
      mark.className = "swatch";
      mark.style.background = one.colour;
      row.append(mark, `${one.name}: ${intervalText(one, i)} at ${shortNumber(one.x[i])}`);
      rows.push(row);
    }
    if (!rows.length) return;
    hint.replaceChildren(...rows);
    hint.style.visibility = "visible";
    hint.style.top = "12px";
    hint.style.left = `${Math.min(at + 14, box.width - hint.offsetWidth - 8)}px`;
    line.setAttribute("x1", at);
    line.setAttribute("x2", at);
    line.setAttribute("visibility", "visible");
  });
}

function nearest(xs, ys, x) {
  let best = null;
  for (let i = 0; i < xs.length; i++) {
    if (ys[i] === null || xs[i] === null) continue;
    if (best === null || Math.abs(xs[i] - x) < Math.abs(xs[best] - x)) best = i;
  }
  return best;
}
