"use strict";
// Draws the report from DATA. Topic and LAN names are data, never markup: only textContent is used.
const COLUMNS = ["fabric", "topic", "from", "to", "samples", "p50", "p99", "max", "judged", "late",
  "late_low", "late_high", "misses", "loss", "loss_method", "slowest", "duplicate", "suspect",
  "changes", "without_source", "clock_error"];
const HOP_COLOURS = ["#56b4e9", "#7f8c9b", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00"];
const HOPS = new Map(DATA.hops.map(([name, text], n) => [name, { text, colour: HOP_COLOURS[n] }]));
const PAIRS = DATA.pairs.map((values, index) => {
  const pair = { index };
  COLUMNS.forEach((name, n) => { pair[name] = values[n]; });
  return pair;
});
const MANY_FABRICS = new Set(PAIRS.map((pair) => pair.fabric)).size > 1;
const PAGE = 100;

// ---------------------------------------------------------------- building blocks

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.filter((child) => child !== null));
  return element;
}

function shape(tag, attributes = {}, text = null) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== null) element.textContent = text;
  return element;
}

function drawing(width, height, title) {
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
  svg.append(shape("title", {}, title));
  return svg;
}

function put(id, ...children) { document.getElementById(id).append(...children); }

function digits(value, count = 3) {
  if (value === 0) return "0";
  return Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en")
    : String(Number(value.toPrecision(count)));
}

function count(value, one, many = `${one}s`) {
  return `${digits(value)} ${value === 1 ? one : many}`;
}

function duration(ns) {
  if (ns === null || ns === undefined) return "–";
  if (ns < 1e3) return `${digits(ns)} ns`;
  if (ns < 1e6) return `${digits(ns / 1e3)} µs`;
  if (ns < 1e9) return `${digits(ns / 1e6)} ms`;
  return `${digits(ns / 1e9)} s`;
}

function scaled(value, unit) {
  if (value === null || value === undefined) return "–";
  const steps = ["", "k", "M", "G", "T", "P"];
  let step = 0;
  while (value >= 1000 && step < steps.length - 1) { value /= 1000; step += 1; }
  return `${digits(value)}${unit || steps[step] ? " " : ""}${steps[step]}${unit}`;
}

function percent(share) {
  if (share === null || share === undefined || Number.isNaN(share)) return "–";
  if (share > 0 && share < 0.0001) return "< 0.01 %";
  return `${digits(share * 100)} %`;
}

function clock(seconds, isLong = false) {
  const text = new Date(seconds * 1000).toISOString();
  return isLong ? `${text.slice(0, 10)} ${text.slice(11, 19)}` : text.slice(11, 16);
}

function bounds(low, high) { return `between ${percent(low)} and ${percent(high)}`; }

function nameOf(pair) {
  return `${MANY_FABRICS ? `${pair.fabric}: ` : ""}${pair.topic}`;
}

function wayOf(pair) { return `${pair.from} → ${pair.to}`; }

function legend(entries) {
  return make("ul", { class: "legend" }, ...entries.map(([colour, text]) => {
    const mark = make("i");
    mark.style.background = colour;
    return make("li", {}, mark, text);
  }));
}

function table(head, rows, onRow = null) {
  const body = make("tbody");
  rows.forEach((cells, n) => {
    const row = make("tr", {}, ...cells.map((cell, c) => make("td", head[c][1], cell)));
    if (onRow) onRow(row, n);
    body.append(row);
  });
  const heads = head.map(([text, attributes]) => make("th", attributes, text));
  return make("div", { class: "scroll" },
    make("table", {}, make("thead", {}, make("tr", {}, ...heads)), body));
}

// ---------------------------------------------------------------- plots

const PLOT = { width: 1070, height: 250, left: 64, right: 14, top: 14, bottom: 74 };
const BARS = 44;

function ticksBetween(low, high) {
  let ticks = [];
  // The densest choice of round numbers that leaves the axis readable.
  for (const choice of [[1], [1, 3], [1, 2, 5], [1, 1.5, 2, 3, 5, 7], [1, 1.2, 1.4, 1.6, 1.8, 2,
    2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9]]) {
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1) {
      for (const digit of choice) {
        const value = digit * 10 ** power;
        if (value >= low && value <= high) found.push(value);
      }
    }
    if (found.length > 8) break;
    ticks = found;
  }
  return ticks;
}

const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200,
  86400];

// Round times between two, at most eight.
function timesBetween(first, last) {
  let step = STEPS_S.find((each) => (last - first) / each <= 8);
  step = step || 86400 * Math.ceil((last - first) / 86400 / 8);
  const times = [];
  for (let t = Math.ceil(first / step) * step; t <= last; t += step) times.push(t);
  const text = (t) => (step < 60 ? clock(t, true).slice(11) : last - first > 86400
    ? clock(t, true).slice(5, 16) : clock(t));
  return times.map((t) => [t, text(t)]);
}

// Latency over time, logarithmic, with the share of late samples below.
function timePlot(series, options) {
  const { width, height, left, right, top, bottom } = PLOT;
  const svg = drawing(width, height, options.title);
  const values = [...series.p50, ...series.p99, options.deadline || null]
    .filter((value) => value > 0);
  if (series.t.length === 0 || values.length === 0) return make("p", { class: "note" }, "no data");
  const low = Math.min(...values) / 1.3;
  const high = Math.max(...values) * 1.3;
  const first = series.t[0];
  const step = DATA.about.bucket_s;
  const last = series.t[series.t.length - 1] + step;
  const x = (t) => left + (t - first) / (last - first) * (width - left - right);
  const floor = height - bottom;
  const y = (ns) => floor - Math.log(ns / low) / Math.log(high / low) * (floor - top);

  for (const tick of ticksBetween(low, high)) {
    svg.append(shape("line", { x1: left, x2: width - right, y1: y(tick), y2: y(tick),
      stroke: "#e8ecf1" }));
    svg.append(shape("text", { x: left - 8, y: y(tick) + 4, "text-anchor": "end" },
      duration(tick)));
  }
  for (const [t, text] of timesBetween(first, last)) {
    svg.append(shape("line", { x1: x(t), x2: x(t), y1: height - 20, y2: height - 16,
      stroke: "#cfd6de" }));
    const anchor = x(t) < left + 30 ? "start" : x(t) > width - right - 30 ? "end" : "middle";
    svg.append(shape("text", { x: x(t), y: height - 4, "text-anchor": anchor }, text));
  }

  const strip = floor + 8;
  const base = strip + BARS - 6;
  svg.append(shape("line", { x1: left, x2: width - right, y1: base, y2: base,
    stroke: "#cfd6de" }));
  svg.append(shape("text", { x: left - 8, y: base - 12, "text-anchor": "end" }, "late"));
  series.t.forEach((t, n) => {
    const judged = series.judged[n];
    const late = judged ? series.late[n] / judged : null;
    if (late) {
      const tall = Math.max(2, late * (BARS - 10));
      svg.append(shape("rect", { x: x(t), y: base - tall, height: tall, fill: "#b3261e",
        width: Math.max(1, x(t + step) - x(t) - 1) }));
    }
  });

  for (const [at, before, after] of options.changes || []) {
    svg.append(shape("line", { x1: x(at), x2: x(at), y1: top, y2: floor, stroke: "#6a3d9a",
      "stroke-width": 1.5, "stroke-dasharray": "5 3" }));
    const isRight = x(at) > width * 0.75;
    svg.append(shape("text", { x: x(at) + (isRight ? -5 : 5), y: top + 9, class: "strong",
      "text-anchor": isRight ? "end" : "start" }, `${duration(before)} → ${duration(after)}`));
  }
  if (options.deadline) {
    svg.append(shape("line", { x1: left, x2: width - right, y1: y(options.deadline),
      y2: y(options.deadline), stroke: "#b3261e", "stroke-width": 1.5, "stroke-dasharray": "6 4" }));
    const label = shape("text", { x: width - right, y: y(options.deadline) - 5, "text-anchor": "end" },
      `deadline ${duration(options.deadline)}`);
    label.style.fill = "#b3261e";
    svg.append(label);
  }
  for (const [name, colour] of [["p99", "#d55e00"], ["p50", "#0072b2"]]) {
    let path = "";
    let gap = true;
    series.t.forEach((t, n) => {
      const value = series[name][n];
      if (!(value > 0)) { gap = true; return; }
      gap = gap || (n > 0 && t - series.t[n - 1] > 1.5 * step);
      path += `${gap ? "M" : "L"}${x(t + step / 2).toFixed(1)} ${y(value).toFixed(1)}`;
      gap = false;
    });
    svg.append(shape("path", { d: path, fill: "none", stroke: colour, "stroke-width": 2,
      "stroke-linejoin": "round", "stroke-linecap": "round" }));
  }
  for (const [at, value] of options.outliers || []) {
    svg.append(shape("circle", { cx: x(at + step / 2), cy: y(value), r: 4.5, fill: "none",
      stroke: "#b3261e", "stroke-width": 1.5 }));
  }
  const wide = (width - left - right) / series.t.length;
  series.t.forEach((t, n) => {
    const area = shape("rect", { x: x(t), y: top, width: Math.max(1, Math.min(wide, x(t + step) -
      x(t))), height: base - top, fill: "transparent" });
    const judged = series.judged[n];
    area.append(shape("title", {}, `${clock(t, true)} UTC\nmedian ${duration(series.p50[n])}\n` +
      `99 of 100 below ${duration(series.p99[n])}\n` +
      `${judged ? `${percent(series.late[n] / judged)} late` : "no deadline to judge by"}`));
    svg.append(area);
  });
  const names = options.names || ["median", "99th percentile"];
  const entries = [["#0072b2", names[0]], ["#d55e00", names[1]],
    ["#b3261e", "share of late samples (full height: all)"]];
  if ((options.changes || []).length) entries.push(["#6a3d9a", "the level changed"]);
  if ((options.outliers || []).length) entries.push(["#ffffff", "○ far above the usual"]);
  return make("div", {}, svg, legend(entries));
}

// Where the time goes: one bar for each path, made of the mean of each hop.
function waterfall(paths) {
  const bars = paths.filter((path) => Object.keys(path.hops).length);
  if (!bars.length) return make("p", { class: "note" }, "no sampled hop times");
  const sums = bars.map((path) => Object.values(path.hops).reduce((sum, hop) => sum + hop[0], 0));
  const longest = Math.max(...sums) || 1;
  const width = 1070;
  const left = 90;
  const tall = 40;
  const used = new Set();
  const svg = drawing(width, bars.length * (tall + 12) + 4, "where the time goes");
  bars.forEach((path, n) => {
    const y = n * (tall + 12) + 2;
    svg.append(shape("text", { x: left - 8, y: y + 18, "text-anchor": "end", class: "strong" },
      path.path));
    svg.append(shape("text", { x: left - 8, y: y + 33, "text-anchor": "end" },
      duration(sums[n])));
    let at = left;
    for (const [hop, { text, colour }] of HOPS) {
      if (!path.hops[hop]) continue;
      const [mean, p50, p99] = path.hops[hop];
      const wide = mean / longest * (width - left - 10);
      const bar = shape("rect", { x: at, y, width: Math.max(0.5, wide), height: tall,
        fill: colour, stroke: "#fff" });
      bar.append(shape("title", {}, `${text}\nmean ${duration(mean)}, median ${duration(p50)}, ` +
        `99 of 100 below ${duration(p99)}`));
      svg.append(bar);
      if (wide > 56) {
        const label = shape("text", { x: at + wide / 2, y: y + tall / 2 + 4,
          "text-anchor": "middle" }, duration(mean));
        label.style.fill = "#fff";
        label.style.pointerEvents = "none";
        svg.append(label);
      }
      used.add(hop);
      at += wide;
    }
  });
  const rows = [...HOPS].filter(([hop]) => used.has(hop)).map(([hop, { text, colour }]) => {
    const mark = make("i");
    mark.style.background = colour;
    return [make("span", { class: "hop" }, mark, text), ...bars.map((path) => {
      const [mean, , p99] = path.hops[hop] || [null, null, null];
      return mean === null ? "–" : `${duration(mean)} · ${duration(p99)}`;
    })];
  });
  return make("div", {}, svg, table([["average · 99 of 100 below", { class: "text" }],
    ...bars.map((path) => [path.path, {}])], rows));
}

// ---------------------------------------------------------------- sections

function showOrigin() {
  const about = DATA.about;
  const files = about.files === undefined ? "" : ` in ${count(about.files, "file")}`;
  put("origin", `${count(about.rows, "trace row")} (one for each copy of a sample that was traced)` +
    `${files} of ${about.directory}, ` +
    `${about.first.slice(0, 19).replace("T", " ")} to ${about.last.slice(0, 19).replace("T", " ")}` +
    ` UTC. Made ${DATA.made_at}.`);
}

function showState() {
  const totals = DATA.totals;
  const late = PAIRS.filter((pair) => pair.late_low > DATA.target);
  // Of these only late samples were traced, so nobody knows how many were not.
  const seen = PAIRS.filter((pair) => pair.misses && !pair.judged);
  const seenText = `${count(seen.reduce((sum, pair) => sum + pair.misses, 0), "late sample")} of ` +
    `${count(seen.length, "topic")} that ${seen.length === 1 ? "is" : "are"} traced only when late`;
  let verdict = "No topic is known to be late.";
  let kind = "good";
  if (late.length) {
    const worst = late[0];
    verdict = `${digits(late.length)} of ${count(DATA.pair_count, "topic")} between two LANs ` +
      `${late.length === 1 ? "is" : "are"} late more often than tolerated (${percent(DATA.target)})` +
      `${late.length === 1 ? ":" : "; worst:"} ${nameOf(worst)}, ${wayOf(worst)}, ` +
      `${percent(worst.late)} late.`;
    kind = "bad";
  } else if (seen.length) {
    verdict = `Something is late: there ${seen.length === 1 && seen[0].misses === 1 ? "was" : "were"} ` +
      `${seenText}. How often they are late cannot be told.`;
    kind = "bad";
  } else if (!totals.judged) {
    verdict = "Nothing can be said about lateness: no traced sample has a deadline.";
    kind = "unknown";
  }
  const tiles = [
    [scaled(totals.samples, ""), "samples delivered (estimate)"],
    [scaled(totals.bytes, "B"), "delivered (estimate)"],
    [totals.judged ? percent(totals.late / totals.judged) : "–", totals.late_bounds
      ? `late (${bounds(...totals.late_bounds)})` : "late: none could be judged"],
    [digits(totals.misses), totals.misses === 1 ? "late sample seen" : "late samples seen"],
    [totals.loss_known_pairs ? percent(totals.lost / (totals.loss_expected || 1)) : "unknown",
      totals.loss_known_pairs ? `lost, where it is known (${digits(totals.loss_known_pairs)} of ` +
      `${digits(DATA.pair_count)})` : "lost: edges did not count"],
    [scaled(totals.duplicate_bytes, "B"), "sent twice, to be in time (estimate)"],
    [percent(totals.suspect / totals.rows), "of the rows have contradictory clocks"],
  ];
  put("state", make("p", { class: `verdict ${kind}` }, verdict), make("div", { class: "tiles" },
    ...tiles.map(([value, text]) => make("div", { class: "tile" }, make("b", {}, value),
      make("span", {}, text)))));
  const remarks = [];
  if (late.length && seen.length) remarks.push(`Besides, there were ${seenText}.`);
  if (!late.length && totals.late_bounds && totals.late_bounds[1] > DATA.target) {
    remarks.push(`So few samples could be judged that up to ${percent(totals.late_bounds[1])} may ` +
      `be late without having been seen; ${percent(DATA.target)} is tolerated.`);
  }
  if (DATA.about.unreadable_files) {
    remarks.push(`${count(DATA.about.unreadable_files, "file")} could not be read; left out.`);
  }
  if (DATA.about.rows_too_late) {
    remarks.push(`${count(DATA.about.rows_too_late, "row")} came too late to be counted.`);
  }
  if (totals.clock_unknown > totals.rows / 100) {
    remarks.push(`${percent(totals.clock_unknown / totals.rows)} of the rows were written before ` +
      "the edges knew each other's clocks; their times are taken as they are.");
  }
  if (totals.source_unknown > totals.rows / 100) {
    remarks.push(`${percent(totals.source_unknown / totals.rows)} of the rows have source ` +
      "timestamps that are no times of day; their latency begins at the edge.");
  }
  remarks.forEach((text) => put("state", make("p", { class: "note" }, text)));
}

function showAdvice() {
  if (!DATA.recommendations.length) {
    put("advice", make("p", { class: "note" }, "Nothing: no finding asks for a change."));
    return;
  }
  const shown = 8;
  const items = DATA.recommendations.map((advice) => {
    const evidence = Object.entries(advice.evidence).map(([name, value]) =>
      `${name.replaceAll("_", " ")}: ${value === null ? "–" : typeof value === "number"
        ? (name.endsWith("ns") ? duration(value) : digits(value)) : value}`).join(" · ");
    return make("div", { class: "advice" },
      make("span", { class: `badge ${advice.kind}`, title: DATA.kinds[advice.kind] || "" },
        advice.kind),
      make("div", {}, advice.text),
      make("details", { class: "evidence" }, make("summary", {}, "evidence"), evidence));
  });
  if (DATA.recommendations.some((each) => (DATA.kinds[each.kind] || "").includes("applied"))) {
    put("advice", make("p", { class: "note" }, "To apply what can be applied, beside this file: ",
      make("code", {}, "ddswan recommend apply recommendations.json --dry-run"),
      " shows what it would change, without --dry-run it does it; ",
      make("code", {}, "ddswan recommend clear"), " takes it back."));
  }
  put("advice", ...items.slice(0, shown));
  if (items.length > shown) {
    const more = make("button", { type: "button" }, `${items.length - shown} more`);
    more.addEventListener("click", () => more.replaceWith(...items.slice(shown)));
    put("advice", more);
  }
  if (DATA.recommendation_count > items.length) {
    put("advice", make("p", { class: "note" },
      `All ${digits(DATA.recommendation_count)} are in recommendations.json.`));
  }
}

function showOverview() {
  const sums = new Map();
  for (const { series } of DATA.details) {
    series.t.forEach((t, n) => {
      const sum = sums.get(t) || { p50: [], p99: 0, judged: 0, late: 0 };
      if (series.p50[n] > 0) sum.p50.push(series.p50[n]);
      sum.p99 = Math.max(sum.p99, series.p99[n] || 0);
      sum.judged += series.judged[n] || 0;
      sum.late += series.late[n] || 0;
      sums.set(t, sum);
    });
  }
  const times = [...sums.keys()].sort((a, b) => a - b);
  const middle = (values) => values.sort((a, b) => a - b)[Math.floor(values.length / 2)] || 0;
  put("overview", make("p", { class: "note" }, DATA.pair_count > DATA.details.length
    ? `The ${DATA.details.length} worst topics together; single ones are below.`
    : "All topics together; single ones are below."),
  timePlot({ t: times, p50: times.map((t) => middle(sums.get(t).p50)),
    p99: times.map((t) => sums.get(t).p99), judged: times.map((t) => sums.get(t).judged),
    late: times.map((t) => sums.get(t).late) }, { title: "everything over time",
    names: ["median of the topic in the middle", "99th percentile of the slowest topic"] }));
}

function fillDetail(box, pair) {
  const detail = DATA.details[pair.index];
  const since = pair.without_source ? "from its edge on: its source timestamps are no times of day"
    : "from the publisher's timestamp until written into DDS";
  if (!pair.judged && pair.misses && pair.p50 === null) {
    box.append(make("p", { class: "note" }, `${count(pair.misses, "late sample")} of it ` +
      `${pair.misses === 1 ? "was" : "were"} traced` +
      `${detail.deadline ? `, by a deadline of ${duration(detail.deadline)}` : ""}, and none of the ` +
      "others: how often and how late it usually is cannot be told. Let trace.topics trace a share " +
      "of it to know more."));
  } else {
    box.append(make("h4", {}, `Latency over time, ${since}`),
    timePlot(detail.series, { title: `${pair.topic} over time`, deadline: detail.deadline, changes: detail.changes,
      outliers: detail.outliers }),
    make("h4", {}, "Where the time goes, on average, by path"), waterfall(detail.paths));
    if (pair.clock_error !== null) {
      box.append(make("p", { class: "note" }, "Times between two machines are known to within " +
        `± ${duration(pair.clock_error)}, as their clocks are.`));
    }
  }
  const late = Object.entries(detail.blame).sort((a, b) => b[1] - a[1]);
  if (late.length) {
    const total = late.reduce((sum, [, count]) => sum + count, 0);
    box.append(make("h4", {}, "What took longest in the samples that were late"),
      table([["", { class: "text" }], ["late samples", {}], ["share", {}]],
        late.map(([hop, count]) => [HOPS.get(hop).text, digits(count), percent(count / total)])));
  }
  const ways = detail.paths.filter((path) => path.copies);
  if (ways.length) {
    box.append(make("h4", {}, `Sent on several paths: which one wins, and what it costs ` +
      `(${scaled(pair.duplicate, "B")} sent twice)`),
    table([["path", { class: "text" }], ["arrived first", {}], ["copies that arrived", {}],
      ["late, had it been alone", {}]],
    ways.map((path) => {
      const missing = Math.max(0, path.duplicated - path.copies);
      const judged = path.copies_judged + missing;
      return [path.path, percent(path.win_share), percent(path.copies / path.duplicated),
        path.copies_judged ? percent((path.copies_late + missing) / judged) : "–"];
    })));
  }
}

function showDetails() {
  const others = DATA.pair_count - DATA.details.length;
  put("detail-note", others > 0 ? `The ${DATA.details.length} worst; the other ${digits(others)} ` +
    "are in the table below." : "Click a line to open or close it.");
  PAIRS.slice(0, DATA.details.length).forEach((pair, n) => {
    const figures = make("span", { class: "figures" });
    if (pair.late !== null) {
      figures.append(make("span", { class: pair.late_low > DATA.target ? "late" : "" },
        `${percent(pair.late)} late`), " · ");
    }
    figures.append(`median ${duration(pair.p50)} · 99th percentile ${duration(pair.p99)}`);
    const box = make("details", { class: "pair", id: `pair-${pair.index}` },
      make("summary", {}, make("h3", {}, nameOf(pair)), make("span", {}, wayOf(pair)), figures));
    const fill = () => {
      if (box.open && !box.dataset.filled) { box.dataset.filled = "1"; fillDetail(box, pair); }
    };
    box.addEventListener("toggle", fill);
    put("details", box);
    if (n < 3) { box.open = true; fill(); }
  });
}

function showRouters() {
  if (!DATA.routers.length) {
    put("routers", make("p", { class: "note" }, "No traced sample passed a router."));
    return;
  }
  put("routers", table([["router", { class: "text" }], ["samples", {}], ["bytes", {}],
    ["median inside", {}], ["99 of 100 below", {}], ["longest", {}]],
  DATA.routers.slice(0, 50).map((router) => [router.router, scaled(router.samples, ""),
    scaled(router.bytes, "B"), duration(router.p50_ns), duration(router.p99_ns),
    duration(router.max_ns)])));
}

const TABLE = [
  ["topic", "topic", (pair) => `${pair.index < DATA.details.length ? "▸ " : ""}${nameOf(pair)}`],
  ["from", "from", (pair) => pair.from],
  ["to", "to", (pair) => pair.to],
  ["samples", "samples", (pair) => scaled(pair.samples, "")],
  ["median", "p50", (pair) => duration(pair.p50)],
  ["99th percentile", "p99", (pair) => duration(pair.p99)],
  ["longest", "max", (pair) => duration(pair.max)],
  ["late", "late", (pair) => percent(pair.late)],
  ["certainly late", "late_low", (pair) => percent(pair.late_low)],
  ["late samples seen", "misses", (pair) => digits(pair.misses || 0)],
  ["lost", "loss", (pair) => (pair.loss === null ? "unknown" : percent(pair.loss))],
  ["slowest when late", "slowest", (pair) => (pair.slowest || "–").replaceAll("_", " ")],
];
const TEXT_COLUMNS = new Set(["topic", "from", "to", "slowest"]);

function showTable() {
  let sorted = null;
  let isRising = false;
  let limit = PAGE;
  const search = document.getElementById("search");

  function draw() {
    const wanted = search.value.toLowerCase();
    const found = PAIRS.filter((pair) =>
      `${nameOf(pair)} ${pair.from} ${pair.to}`.toLowerCase().includes(wanted));
    if (sorted) {
      const sign = isRising ? 1 : -1;
      const empty = TEXT_COLUMNS.has(sorted) ? "" : -1;
      const value = (pair) => (pair[sorted] === null ? empty : pair[sorted]);
      found.sort((a, b) => sign * (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0));
    }
    const shown = found.slice(0, limit);
    const head = TABLE.map(([text, name]) => [text,
      { class: `sortable${TEXT_COLUMNS.has(name) ? " text" : ""}` +
        `${sorted === name ? " sorted" : ""}` }]);
    const drawn = table(head, shown.map((pair) => TABLE.map(([, , text]) => text(pair))),
      (row, n) => {
        const box = document.getElementById(`pair-${shown[n].index}`);
        if (!box) return;
        row.classList.add("opens");
        row.addEventListener("click", () => { box.open = true; box.scrollIntoView(); });
      });
    drawn.querySelectorAll("th").forEach((cell, n) => cell.addEventListener("click", () => {
      const name = TABLE[n][1];
      isRising = sorted === name ? !isRising : TEXT_COLUMNS.has(name);
      sorted = name;
      draw();
    }));
    drawn.querySelectorAll("td.sortable").forEach((cell) => cell.classList.remove("sortable"));
    const place = document.getElementById("table");
    place.replaceChildren(drawn);
    if (found.length > limit) {
      const more = make("button", { type: "button" }, "show more");
      more.addEventListener("click", () => { limit += 5 * PAGE; draw(); });
      place.append(more);
    }
    const left = DATA.pair_count - PAIRS.length;
    document.getElementById("found").textContent = `${digits(found.length)} of ` +
      `${digits(PAIRS.length)}${left ? ` (${digits(left)} more in the Parquet table "outcomes")`
        : ""}`;
  }
  search.addEventListener("input", () => { limit = PAGE; draw(); });
  draw();
}

function showWords() {
  const words = [
    ["median, 99th percentile", "Half of the samples take less than the median; of a hundred, " +
      "one takes longer than the 99th percentile. Values are at most 1 % off."],
    ["late", "A sample that was written into the subscriber's LAN later after its source " +
      "timestamp than the publisher's deadline. The share is estimated from samples chosen at " +
      "random; “certainly late” is the lower end of what 19 of 20 such estimates would give."],
    ["late samples seen", "All late samples that were traced, for whatever reason. Edges trace every " +
      "late sample unless told not to, but only a share of the others."],
    ["lost", "Known only where the receiving edge counted what it gave up, or where every " +
      "sample was traced. Reliable topics lose nothing while their LANs can be reached."],
    ["paths", "routed: by the topic's router. express: from edge to edge. standby: by another " +
      "router. When a sample goes by two paths, the first copy is delivered, the other dropped."],
    ["clocks", "Times of different machines are translated with the offsets the edges measure. " +
      "Rows that contradict the error bound of these offsets are left out of all latencies."],
    ...Object.entries(DATA.kinds).map(([kind, text]) => [kind, `What to do: ${text}.`]),
    ...DATA.hops.map(([name, text]) => [name.replaceAll("_", " "), `The time from ${text}.`
      .replace("from waiting", "waiting").replace("from inside", "inside")
      .replace("from destination edge, until", "in the destination edge, until")
      .replace("from edge to edge", "from edge to edge")]),
  ];
  put("words", ...words.flatMap(([word, text]) => [make("dt", {}, word), make("dd", {}, text)]));
}

showOrigin();
showState();
showAdvice();
showOverview();
showDetails();
showRouters();
showTable();
showWords();
