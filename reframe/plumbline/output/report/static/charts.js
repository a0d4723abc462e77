// Charts and tables of a check's page, from the data that stands in the page. A chart is drawn
// when it comes into sight, a table when it is opened: a page of fifty figures opens at once.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  data.figures.forEach((figure) => Object.assign(figure, data.axes[figure.axis]));
  const charts = [...document.querySelectorAll(".chart")];
  const drawn = new Set();

  // -- helpers --------------------------------------------------------------------------------

  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  // plotly.js reads tags in every text it shows.
  const plain = (text) =>
    String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const stamp = (minutes) => new Date(minutes * 60000).toISOString().slice(0, 16).replace("T", " ");
  const known = (value) => value !== null && value !== undefined;
  const number = (value) =>
    known(value) ? value.toLocaleString("en-US", { maximumSignificantDigits: 5 }) : "";
  const percent = (share) => `${share > 0 ? "+" : "\u2212"}${Math.abs(share * 100).toFixed(1)} %`;
  const CHANGES = { regression: "--red", "above-ceiling": "--red", improvement: "--green",
    change: "--muted" };
  const VERDICTS = {
    p: ["passed", "circle", "--line-data"],
    f: ["failed", "x", "--red"],
    w: ["waived", "diamond", "--violet"],
    a: ["above its ceiling", "triangle-up", "--red"],
    n: ["not asserted", "circle-open", "--line-data"],
    "?": ["unknown", "square-open", "--muted"],
  };

  // From [index, value] where it changes to a value for each place.
  const spread = (runs, count) => {
    const values = new Array(count);
    (runs || []).forEach(([at, value], which) => {
      values.fill(value, at, which + 1 < runs.length ? runs[which + 1][0] : count);
    });
    return values;
  };

  const range = (lists) => {
    let low = Infinity;
    let high = -Infinity;
    for (const list of lists) {
      for (const value of list) {
        if (known(value)) {
          low = Math.min(low, value);
          high = Math.max(high, value);
        }
      }
    }
    const pad = (high - low || Math.abs(high) || 1) * 0.08;
    return [low - pad, high + pad];
  };

  const layout = (unit, more) => {
    const axis = {
      gridcolor: css("--grid"), linecolor: css("--line"), zeroline: false, ticks: "outside",
      tickcolor: css("--line"), automargin: true, separatethousands: true, exponentformat: "none",
    };
    return {
      font: { family: css("--sans"), size: 12, color: css("--muted") },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: 56, r: 12, t: 14, b: 30 },
      hoverlabel: { font: { family: css("--sans") }, bgcolor: css("--surface"),
        bordercolor: css("--line") },
      hovermode: "closest", dragmode: "zoom", showlegend: false,
      ...more,
      xaxis: { ...axis, showgrid: false, ...more.xaxis },
      yaxis: { ...axis, title: { text: plain(unit), standoff: 8 }, ...more.yaxis },
    };
  };
  // Below the chart, in words that wrap: plotly.js' own would take its room from the plot.
  const DASHES = { dot: "2 2", dash: "5 3", dashdot: "6 2 2 2" };
  const SHAPES = {
    circle: "M8 5a3 3 0 1 0 6 0a3 3 0 1 0-6 0", "circle-open": "M8 5a3 3 0 1 0 6 0a3 3 0 1 0-6 0",
    x: "M8 2l6 6m0-6l-6 6", diamond: "M11 1l4 4-4 4-4-4z", "triangle-up": "M11 1l4 8h-8z",
    "square-open": "M8 2h6v6h-6z", "line-ew": "M4 5h14",
  };
  const swatch = (trace) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    const draw = (path, stroke, fill, more = {}) => {
      const drawn = made.appendChild(document.createElementNS(made.namespaceURI, "path"));
      const all = { d: path, stroke, fill, "stroke-width": 1.5, ...more };
      Object.entries(all).forEach(([name, value]) => drawn.setAttribute(name, value));
    };
    made.setAttribute("viewBox", "0 0 22 10");
    made.setAttribute("width", 22);
    made.setAttribute("height", 10);
    if (trace.fill) draw("M0 1h22v8h-22z", "none", trace.fillcolor);
    else if (trace.mode.includes("lines")) {
      const dashes = DASHES[trace.line.dash] || "none";
      draw("M0 5h22", trace.line.color, "none", { "stroke-dasharray": dashes });
    }
    if (trace.mode.includes("markers")) {
      const { symbol = "circle", line } = trace.marker;
      const color = trace.marker.color || (trace.line || line).color;
      const open = symbol.endsWith("open") || symbol === "x" || symbol === "line-ew";
      draw(SHAPES[symbol], open ? color : "none", open ? "none" : color,
        { opacity: trace.marker.opacity || 1 });
    }
    return made;
  };
  const legend = (place, traces) => {
    const made = document.createElement("ul");
    made.className = "legend";
    made.setAttribute("aria-hidden", "true");
    traces.filter((trace) => trace.showlegend !== false).forEach((trace) => {
      const item = made.appendChild(document.createElement("li"));
      item.append(swatch(trace), trace.name);
    });
    if (place.nextElementSibling?.className === "legend") place.nextElementSibling.remove();
    place.after(made);
  };
  // A sheet of paper has its own width, which the page does not have yet before it is printed.
  const paper = () => document.documentElement.classList.contains("paper");
  const width = (place) => {
    if (!paper()) return place.clientWidth;
    if (!place.closest(".charts")?.querySelector("[data-kind=nodes]")) return 680;
    return place.dataset.kind === "nodes" ? 265 : 400;
  };
  const show = (place, traces, shape) => {
    if (paper()) Object.assign(shape, { width: width(place), height: 200 });
    legend(place, traces);
    window.Plotly.react(place, traces, shape,
      { displayModeBar: false, responsive: true, displaylogo: false });
  };

  // -- history --------------------------------------------------------------------------------

  function history(place, figure) {
    const count = figure.value.length;
    const x = figure.time.map(stamp);
    const [lower, upper, ceiling] = ["lower", "upper", "ceiling"].map(
      (name) => spread(figure[name], count));
    const lines = figure.lines || [];
    const seen = [figure.value, figure.low || [], figure.high || [], ...lines.map((l) => l.value)];
    let [low, high] = range([...seen, lower, upper]);
    const peak = ceiling.filter(known).at(-1);
    const near = known(peak) && peak < high + 1.5 * (high - low) && peak > low - 1.5 * (high - low);
    if (near) [low, high] = range([...seen, lower, upper, ceiling]);

    const traces = [];
    const shapes = [];
    const labels = [];
    const span = (figure.time[count - 1] - figure.time[0]) * 60000;
    const slack = Math.max(span * 0.02, 43200000);
    const edges = [figure.time[0] * 60000 - slack, figure.time[count - 1] * 60000 + slack];
    // A single session's bounds are lines over the whole width.
    const line = (name, values, dash, color, thick = 1) => traces.push({
      x: count > 1 ? x : edges, y: count > 1 ? values : [values[0], values[0]], name,
      mode: "lines", line: { dash, color, width: thick, shape: "hv" },
      hoverinfo: "skip", connectgaps: false,
    });

    // What the bounds allow, a rectangle for each stretch of equal bounds.
    for (let from = 0; from < count;) {
      let to = from + 1;
      while (to < count && lower[to] === lower[from] && upper[to] === upper[from]) to += 1;
      if (known(lower[from]) || known(upper[from])) {
        shapes.push({
          type: "rect", layer: "below", xref: count > 1 ? "x" : "paper",
          x0: count > 1 ? x[from] : 0, x1: count > 1 ? x[Math.min(to, count - 1)] : 1,
          y0: known(lower[from]) ? lower[from] : low, y1: known(upper[from]) ? upper[from] : high,
          fillcolor: css("--band"), line: { width: 0 },
        });
      }
      from = to;
    }
    if (lower.some(known)) line("lower bound", lower, "solid", css("--bound"), 1.2);
    if (upper.some(known)) line("upper bound", upper, "solid", css("--bound"), 1.2);
    if (known(figure.target)) {
      line("reference", new Array(count).fill(figure.target), "dot", css("--bound"));
    }
    if (near) line("ceiling", ceiling, "dashdot", css("--red"));
    else if (known(peak)) {
      line(`ceiling ${number(peak)} ${figure.unit}, off the scale`,
        new Array(count).fill(null), "dashdot", css("--red"));
    }

    if (figure.low) {
      traces.push({ x, y: figure.low, mode: "lines", line: { width: 0 }, hoverinfo: "skip",
        showlegend: false });
      traces.push({ x, y: figure.high, mode: "lines", line: { width: 0 }, fill: "tonexty",
        fillcolor: css("--range"), hoverinfo: "skip", name: "least to most" });
    }
    traces.push({ x, y: figure.value, mode: "lines", hoverinfo: "skip", showlegend: false,
      line: { color: css("--line-data"), width: 1 } });
    lines.forEach((one, which) => traces.push({
      x, y: one.value, mode: "lines+markers", name: one.name, connectgaps: true,
      line: { color: css("--red"), width: 1, dash: ["solid", "dash", "dot"][which % 3] },
      marker: { size: 4 }, hoverinfo: "text",
      text: one.value.map((v, i) => plain(`${one.name}  ${x[i]}  ${number(v)} ${figure.unit}`)),
    }));

    const builds = spread(figure.build, count);
    const on = spread(figure.on, count);
    const letters = [...figure.verdict];
    for (const [letter, [name, symbol, color]] of Object.entries(VERDICTS)) {
      const places = letters.flatMap((l, i) => (l === letter ? [i] : []));
      if (!places.length) continue;
      traces.push({
        x: places.map((i) => x[i]), y: places.map((i) => figure.value[i]), mode: "markers",
        name: !figure.low ? name : letter === "p" ? "median" : `median, some ${name}`,
        customdata: places.map((i) => data.pages[figure.session[i]] || ""),
        marker: { symbol, color: css(color), size: symbol.startsWith("circle") ? 5 : 8 },
        text: places.map((i) => [
          `<b>${plain(number(figure.value[i]))} ${plain(figure.unit)}</b>, ${name}`,
          plain(x[i]), plain(figure.session[i]),
          on[i] ? `on ${plain(on[i].slice(0, 60))}` : "",
          builds[i] ? `build ${plain(builds[i])}` : "",
        ].filter(Boolean).join("<br>")),
        hoverinfo: "text",
      });
    }

    const changes = (figure.build || []).slice(1).filter(([, build]) => build);
    if (changes.length) {
      traces.push({
        x: changes.map(([at]) => x[at]), y: changes.map(() => low), mode: "markers",
        name: "new build", cliponaxis: false,
        marker: { symbol: "triangle-up", size: 9, color: css("--amber") },
        text: changes.map(([at, build]) => `build ${plain(build)}<br>from ${plain(x[at])} on`),
        hoverinfo: "text",
      });
    }
    figure.changes.forEach((change) => {
      const color = css(CHANGES[change.kind] || "--amber");
      if (known(change.until)) {
        shapes.push({ type: "rect", layer: "below", x0: stamp(change.time),
          x1: stamp(change.until), yref: "paper", y0: 0, y1: 1, fillcolor: css("--range"),
          line: { width: 0 } });
      }
      shapes.push({ type: "line", x0: stamp(change.time), x1: stamp(change.time), yref: "paper",
        y0: 0, y1: 1, line: { color, width: 1.2, dash: "dash" } });
      const along = (change.time - figure.time[0]) / (figure.time[count - 1] - figure.time[0] || 1);
      const text = [change.kind.replace("-", " "), percent(change.size), change.node]
        .filter(Boolean).join(" ");
      // The label's ends in pixels, roughly: it stays within the chart's.
      const long = text.length * 6.5;
      const xanchor = along > 0.75 ? "right" : along < 0.25 ? "left" : "center";
      const shift = { right: long, left: 0, center: long / 2 }[xanchor];
      const from = along * (width(place) - 70) - shift;
      labels.push({ from, to: from + long, shown: { x: stamp(change.time), y: 1, yref: "paper",
        yanchor: "bottom", xanchor, showarrow: false, font: { color, size: 11 },
        text: plain(text) } });
    });
    // Labels that would lie on each other stand in rows; what finds no place has its line alone.
    const rows = [[], [], []];
    labels.reverse().forEach((one) => {
      const clear = (other) => other.to + 8 < one.from || one.to + 8 < other.from;
      const row = rows.findIndex((listed) => listed.every(clear));
      if (row >= 0) rows[row].push(one);
    });
    const annotations = rows.flatMap((row, at) =>
      row.map(({ shown }) => ({ ...shown, yshift: 14 * at })));
    const margin = { l: 56, r: 12, t: 14 + 14 * rows.filter((row) => row.length).length, b: 30 };
    show(place, traces, layout(figure.unit, {
      margin, shapes, annotations, xaxis: { type: "date", range: edges },
      yaxis: { range: [low, high] },
    }));
    place.removeAllListeners("plotly_click");
    place.on("plotly_click", (event) => {
      const page = event.points[0].customdata;
      if (page) location.href = page;
    });
  }

  // -- over nodes -----------------------------------------------------------------------------

  const middle = (values) => {
    const sorted = [...values].sort((a, b) => a - b);
    const half = Math.floor(sorted.length / 2);
    return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
  };

  function nodes(place, figure) {
    const { name, value } = figure.nodes;
    const last = figure.value.length - 1;
    const points = { x: [], y: [], text: [] };
    const now = { x: [], y: [], text: [] };
    const medians = value.map((pairs) => middle(pairs.map(([, v]) => v)));
    value.forEach((pairs, which) => pairs.forEach(([at, v]) => {
      const into = at === last ? now : points;
      into.x.push(which);
      into.y.push(v);
      into.text.push(`${plain(name[which])}<br><b>${number(v)} ${plain(figure.unit)}</b>` +
        `<br>${stamp(figure.time[at])}`);
    }));
    const fleet = middle(medians);
    const many = (width(place) - 70) / name.length < 12;
    show(place, [
      { x: [-0.5, name.length - 0.5], y: [fleet, fleet], mode: "lines", hoverinfo: "skip",
        line: { color: css("--bound"), dash: "dot", width: 1 }, name: "median of all" },
      { ...points, mode: "markers", hoverinfo: "text", name: "earlier sessions",
        marker: { color: css("--line-data"), opacity: 0.45, size: many ? 3 : 5 } },
      { x: name.map((_, i) => i), y: medians, mode: "markers", hoverinfo: "skip",
        name: "median of each", marker: { symbol: "line-ew", size: many ? 6 : 16,
          line: { color: css("--text"), width: 2 } } },
      { ...now, mode: "markers", hoverinfo: "text", name: "latest session",
        marker: { color: css("--accent"), size: many ? 5 : 7, symbol: "diamond" } },
    ], layout(figure.unit, {
      xaxis: many ? { showticklabels: false, title: { text: `${name.length} nodes, by name` } } :
        { tickvals: name.map((_, i) => i), ticktext: name.map((n) => plain(n.slice(0, 24))),
          tickangle: name.length > 4 ? -60 : 0, tickfont: { size: 11 } },
      yaxis: { range: range([points.y, now.y]) },
    }));
  }

  // -- over message sizes ---------------------------------------------------------------------

  function curve(place, one) {
    const share = (values) => values.map((v, i) =>
      (known(v) && one.usual[i] ? (v / one.usual[i] - 1) * 100 : null));
    const text = one.latest.map((v, i) => `<b>${number(v)} ${plain(one.unit)}</b>, ` +
      `${plain(one.label[i])}<br>usual ${number(one.usual[i])}`);
    const bound = (name, values) => ({ x: one.size, y: share(values), name, mode: "lines",
      hoverinfo: "skip", line: { color: css("--bound"), width: 1.2 } });
    show(place, [
      ...(one.lower.some(known) ? [bound("lower bound", one.lower)] : []),
      ...(one.upper.some(known) ? [bound("upper bound", one.upper)] : []),
      { x: one.size, y: one.size.map(() => 0), mode: "lines", name: "usual", hoverinfo: "skip",
        line: { color: css("--muted"), dash: "dot", width: 1 } },
      { x: one.size, y: share(one.latest), mode: "lines+markers", name: "latest", text,
        hoverinfo: "text", line: { color: css("--accent") }, marker: { size: 7 } },
    ], layout("against usual, %", {
      xaxis: { type: "log", tickvals: one.size, ticktext: one.label.map(plain),
        autotickangles: [0, -45, -90] },
    }));
  }

  // -- tables ---------------------------------------------------------------------------------

  const cell = (row, content, kind = "td", number = true) => {
    const made = row.appendChild(document.createElement(kind));
    if (content instanceof Node) made.append(content);
    else made.textContent = content;
    if (number) made.className = "num";
    if (kind === "th") made.scope = row.parentNode.nodeName === "THEAD" ? "col" : "row";
  };
  const link = (text, href) => {
    const made = document.createElement("a");
    made.textContent = text;
    made.href = href;
    return made;
  };
  const table = (caption, heads, rows) => {
    const made = document.createElement("table");
    const told = made.createCaption();
    told.className = "hidden";
    told.textContent = caption;
    const head = made.createTHead().insertRow();
    heads.forEach(([name, isNumber]) => cell(head, name, "th", isNumber));
    const body = made.createTBody();
    rows.forEach((cells) => {
      const row = body.insertRow();
      cells.forEach((content, at) => cell(row, content, at ? "td" : "th", heads[at][1]));
    });
    return made;
  };

  const tables = {
    history(figure) {
      const count = figure.value.length;
      const [lower, upper, ceiling, reference, build, on] =
        ["lower", "upper", "ceiling", "reference", "build", "on"].map(
          (name) => spread(figure[name], count));
      const several = Boolean(figure.low);
      const heads = [["Ended", false], ["Session", false],
        [several ? `Median, ${figure.unit}` : `Value, ${figure.unit}`, true],
        ...(several ? [["Least", true], ["Most", true], ["Count", true]] : []),
        ["At least", true], ["At most", true], ["Ceiling", true], ["Verdict", false],
        ...(several ? [] : [["Reference", false]]), ["Build", false],
        ...(several ? [] : [["Nodes", false]])];
      const rows = figure.value.map((value, i) => {
        const id = figure.session[i];
        const page = data.pages[id];
        const source = data.references[reference[i]];
        return [stamp(figure.time[i]), page ? link(id, page) : id, number(value),
          ...(several
            ? [number(figure.low[i]), number(figure.high[i]), String(figure.count[i])] : []),
          number(lower[i]), number(upper[i]), number(ceiling[i]), VERDICTS[figure.verdict[i]][0],
          ...(several ? [] : [source ? link(reference[i], source) : reference[i] || ""]),
          build[i] || "", ...(several ? [] : [on[i] || ""])];
      }).reverse();
      return table(`History of ${figure.name}`, heads, rows);
    },
    nodes(figure) {
      const { name, value } = figure.nodes;
      const heads = [["Node", false], ["Sessions", true], ["Least", true], ["Median", true],
        ["Most", true], [`Latest, ${figure.unit}`, true]];
      const rows = name.map((node, which) => {
        const values = value[which].map(([, v]) => v);
        return [node, String(values.length), number(Math.min(...values)), number(middle(values)),
          number(Math.max(...values)), number(values.at(-1))];
      });
      return table(`${figure.name} at each node`, heads, rows);
    },
  };

  // -- when ------------------------------------------------------------------------------------

  const draw = (place) => {
    const index = Number(place.dataset.index);
    const kinds = { history, nodes, curve };
    const what = place.dataset.kind === "curve" ? data.curves[index] : data.figures[index];
    kinds[place.dataset.kind](place, what);
    drawn.add(place);
  };
  const watch = new IntersectionObserver((entries) => {
    entries.filter((entry) => entry.isIntersecting).forEach(({ target }) => {
      watch.unobserve(target);
      if (!drawn.has(target)) draw(target);
    });
  }, { rootMargin: "500px" });
  charts.forEach((place) => watch.observe(place));

  addEventListener("themed", () => drawn.forEach(draw));
  // On paper all of them, in the colours of paper, which the style sheet has set by then.
  addEventListener("beforeprint", () => {
    document.documentElement.classList.add("paper");
    charts.forEach(draw);
  });
  addEventListener("afterprint", () => {
    document.documentElement.classList.remove("paper");
    drawn.forEach(draw);
  });

  document.querySelectorAll("details[data-table]").forEach((details) => {
    details.addEventListener("toggle", () => {
      const place = details.querySelector(".scroll");
      if (details.open && !place.firstChild) {
        place.append(tables[details.dataset.table](data.figures[Number(details.dataset.index)]));
      }
    });
  });
})();
