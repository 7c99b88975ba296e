"use strict";
// Inflates plotly.js and the numbers of the page, and draws them. Names from a user's data are text, never markup.

const unpacked = async (id) => {
  const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), (sign) => sign.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
};

const plain = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll("\n", "<br>");

// Plotly reads some tags in texts: nothing that it is given may look like one.
const TEXTS = new Set(["name", "text", "ticktext"]);
const escaped = (value, key = "") => {
  if (typeof value === "string") return TEXTS.has(key) ? plain(value) : key.endsWith("color") ? coloured(value) : value;
  if (Array.isArray(value)) return TEXTS.has(key) || typeof value[0] === "object" ? value.map((one) => escaped(one, key)) : value;
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, escaped(one, name)]));
};

// Where the reader's screen is dark: the colours that Python and this script name, on a dark page. Ink becomes light.
const dark = matchMedia("screen and (prefers-color-scheme: dark)");
const INK = "#1b1f24", GRID = "#d5d8dc";
const DARK = { "#000": "#f2f4f7", "#000000": "#f2f4f7", [INK]: "#e8edf2", "#30343b": "#c3cad3", [GRID]: "#2c3742", "#0072b2": "#2f94e0", "#9cc7e2": "#2c5f82", "#00507f": "#9cc7e2" };
const coloured = (colour) => (dark.matches ? DARK[colour.toLowerCase()] ?? colour.replace("rgba(0,114,178,", "rgba(47,148,224,") : colour);

const touch = matchMedia("(pointer: coarse)").matches;
const CONFIG = { responsive: true, displayModeBar: false };
const axis = { gridcolor: GRID, zerolinecolor: "#8a9099", automargin: true, linecolor: INK, tickcolor: INK, ticks: "outside" };
const LAYOUT = {
  font: { family: "system-ui, sans-serif", size: 13, color: INK },
  paper_bgcolor: "rgba(0,0,0,0)",
  plot_bgcolor: "rgba(0,0,0,0)",
  margin: { l: 8, r: 12, t: 8, b: 8 },
  legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
  dragmode: touch ? false : "zoom",
  hovermode: "closest",
};
const drawing = (plot, data, layout) => {
  const whole = { ...LAYOUT, ...layout, xaxis: { ...axis, ...layout.xaxis }, yaxis: { ...axis, ...layout.yaxis } };
  return Plotly.react(plot, escaped(data), escaped(whole), CONFIG);
};

const element = (name, text, attributes = {}) => {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
};
const written = (value) => (typeof value === "number" ? String(Number(value.toPrecision(5))) : (value ?? "–"));
const fill = (box, heads, rows) => {
  const table = element("table"), head = element("tr"), body = element("tbody");
  for (const name of heads) head.append(element("th", name, { scope: "col" }));
  for (const row of rows) {
    const line = element("tr");
    row.forEach((cell, at) => line.append(at ? element("td", written(cell)) : element("th", written(cell), { scope: "row" })));
    body.append(line);
  }
  const top = element("thead");
  top.append(head);
  table.append(top, body);
  box.replaceChildren(table);
};

// The traces of a figure side by side, a row for each place on the axis.
const tabulated = (data, layout) => {
  const traces = data.filter((one) => one.meta?.numbers !== false);
  const sideways = traces.some((one) => one.meta?.sideways);
  const [along, across] = sideways ? ["y", "x"] : ["x", "y"];
  const ticks = layout[`${along}axis`] ?? {};
  const called = (place) => (ticks.ticktext ? ticks.ticktext[ticks.tickvals.indexOf(place)] ?? place : place);
  const rows = new Map(), heads = [ticks.title?.text || along];
  let width = 1;
  for (const trace of traces) {
    const ends = trace[`error_${across}`];
    heads.push(trace.name ?? across, ...(ends ? ["from", "to"] : []));
    trace[along].forEach((place, at) => {
      if (!rows.has(place)) rows.set(place, [called(place)]);
      const row = rows.get(place), value = trace[across][at];
      row[width] = value;
      if (ends && value !== null) [row[width + 1], row[width + 2]] = [value - ends.arrayminus[at], value + ends.array[at]];
    });
    width += ends ? 3 : 1;
  }
  return [heads, [...rows.values()].map((row) => Array.from({ length: width }, (_, at) => row[at]))];
};

const numbered = (figure, table) => {
  const details = figure.querySelector("details");
  const show = () => details.open && fill(details.querySelector(".numbers"), ...table());
  details.addEventListener("toggle", show);
  return show;
};

// A line as one trace for each stretch of it: nothing is drawn where nothing was forecast.
const broken = (cuts, trace) => [0, ...cuts].map((from, at) => ({
  ...trace, x: trace.x.slice(from, cuts[at]), y: trace.y.slice(from, cuts[at]), legendgroup: trace.name, showlegend: at === 0 && trace.showlegend !== false,
}));

// One forecast at a time: a series, a model, and when it was issued.
const fanOf = (figure, fan) => {
  const plot = figure.querySelector(".plot"), output = figure.querySelector("output");
  const { panel, model, when, place, earlier, later } = figure.querySelector("form").elements;
  const dated = fan.dated, last = fan.levels.length - 1;
  const filled = (box, names) => {
    names.forEach((name, at) => box.append(element("option", name, { value: at })));
    box.parentElement.hidden = names.length < 2;
  };
  filled(panel, fan.panels.map((one) => one.name));
  filled(model, fan.models);
  when.type = dated ? "date" : "number";
  if (!dated) when.step = "any";
  const views = () => fan.panels[panel.value].views;
  const moment = (view) => (dated ? view.issued.slice(0, 10) : view.issued);
  const near = () => {
    const wanted = dated ? Date.parse(when.value) : Number(when.value);
    const away = (view) => Math.abs((dated ? Date.parse(moment(view)) : view.issued) - wanted);
    return views().reduce((best, view, at) => (away(view) < away(views()[best]) ? at : best), 0);
  };
  let current;
  const show = numbered(figure, () => {
    const names = fan.levels.flatMap((level) => [`low ${level} %`, `high ${level} %`]);
    return [["time", "what happened", fan.middle, ...names], current.t.map((t, at) => [t, current.y[at], ...current.f.map((one) => one[at])])];
  });
  const draw = () => {
    const view = views()[place.value];
    const made = view.models[model.value];
    current = { t: view.t, y: view.y, f: made };
    const traces = [];
    const known = view.y.map((y, at) => [y, at]).filter(([y, at]) => y !== null && made[0][at] !== null);
    for (let k = last; k >= 0; k -= 1) {
      const edge = { x: view.t, mode: "lines", line: { color: "#0072B2", width: 0.8, dash: ["dot", "dash", "solid"][k % 3] }, hoverinfo: "skip" };
      const low = broken(view.cuts, { ...edge, y: made[1 + 2 * k], showlegend: false });
      const high = broken(view.cuts, { ...edge, y: made[2 + 2 * k], fill: "tonexty", fillcolor: `rgba(0,114,178,${0.14 + 0.1 * (last - k)})`, name: `${fan.levels[k]} %` });
      low.forEach((one, at) => traces.push(one, high[at]));
    }
    const points = fan.binary ? { mode: "markers", marker: { symbol: "line-ns-open", size: 11, color: "#000" } } : { mode: "lines", line: { color: "#000", width: 1.3 } };
    traces.push(...broken(view.before.cuts, { x: view.before.t, y: view.before.y, name: "before", ...points }));
    traces.push(...broken(view.cuts, { x: view.t, y: made[0], name: fan.middle, mode: "lines+markers", line: { color: "#D55E00", width: 2.2 }, marker: { size: fan.binary ? 7 : 0.1, symbol: "circle-open" } }));
    if (known.length) traces.push(...broken(view.cuts, { x: view.t, y: view.y, name: "what happened", mode: fan.binary ? "markers" : "lines+markers", line: { color: "#000", width: 1.3, dash: "dot" }, marker: { color: "#000", size: fan.binary ? 8 : 5, symbol: "x-thin-open" } }));
    if (view.aside?.t.length) { // at the edge of the others, which they would flatten
      const drawn = [...view.before.y, ...made.flat()].filter((one) => one !== null);
      const edge = view.aside.y.map((one) => (one > Math.max(...drawn) ? Math.max(...drawn) : Math.min(...drawn)));
      const marker = { symbol: view.aside.y.map((one, at) => (one > edge[at] ? "triangle-up-open" : "triangle-down-open")), size: 11, color: "#000" };
      const named = `spike of ${view.aside.y.map(written).join(", ")}, set aside`;
      traces.push({ x: view.aside.t, y: edge, name: named, mode: "markers", marker });
    }
    const error = known.reduce((sum, [y, at]) => sum + Math.abs(y - made[0][at]), 0) / known.length;
    let words = `Issued ${view.issued}`;
    if (known.length) words += `: mean absolute error ${written(error)}`;
    if (known.length && last >= 0) {
      const inside = known.filter(([y, at]) => made[1 + 2 * last][at] <= y && y <= made[2 + 2 * last][at]).length;
      words += `; ${inside} of ${known.length} truths inside the ${fan.levels[last]} % band`;
    }
    output.textContent = `${words}.`;
    plot.setAttribute("aria-label", `${fan.title}. ${words}.`);
    when.value = moment(view);
    earlier.disabled = place.value === "0";
    later.disabled = place.value === place.max;
    show();
    const x = { title: { text: fan.x } }, y = { title: { text: fan.y } };
    return drawing(plot, traces, { xaxis: x, yaxis: y });
  };
  const renew = () => {
    for (const one of [when.parentElement, place.parentElement, earlier, later]) one.hidden = views().length < 2;
    const issued = views().map(moment);
    place.max = issued.length - 1;
    [when.min, when.max] = [issued[0], issued[issued.length - 1]];
    place.value = place.max;
    return draw();
  };
  const move = (by) => { place.value = Number(place.value) + by; draw(); };
  panel.addEventListener("change", renew);
  model.addEventListener("change", draw);
  place.addEventListener("input", draw);
  when.addEventListener("change", () => { if (when.value !== "") { place.value = near(); draw(); } });
  earlier.addEventListener("click", () => move(-1));
  later.addEventListener("click", () => move(1));
  figure.querySelector("form").addEventListener("submit", (event) => event.preventDefault());
  dark.addEventListener("change", draw);
  return renew();
};

(async () => {
  try {
    const drawn = JSON.parse(await unpacked("numbers"));
    const figures = document.querySelectorAll("figure");
    if (figures.length) document.head.append(element("script", await unpacked("plotly")));
    for (const [at, one] of drawn.entries()) {
      const figure = figures[at];
      if (one.fan) await fanOf(figure, one.fan);
      else {
        const draw = () => drawing(figure.querySelector(".plot"), one.data, one.layout);
        await draw();
        dark.addEventListener("change", draw);
        numbered(figure, () => tabulated(one.data, one.layout));
      }
    }
    document.documentElement.dataset.ready = "yes";
  } catch (error) {
    const alert = document.getElementById("alert");
    alert.textContent = `The figures cannot be drawn: ${error.message}. They need a browser of 2023 or later.`;
    alert.hidden = false;
    throw error;
  }
})();
