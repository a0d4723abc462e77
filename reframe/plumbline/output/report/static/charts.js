// Charts and tables of the page of a check or node, from the data in the page. To open a page with
// many figures quickly, a chart is drawn when it becomes visible, and a table when it is opened.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  data.figures.forEach((figure) => Object.assign(figure, data.axes[figure.axis]));
  const charts = [...document.querySelectorAll(".chart")];

  // -- helpers --------------------------------------------------------------------------------

  const stamp = (minutes) => new Date(minutes * 60000).toISOString().slice(0, 16).replace("T", " ");
  const known = (value) => value !== null && value !== undefined;
  const percent = (share) => `${share > 0 ? "+" : "\u2212"}${Math.abs(share * 100).toFixed(1)} %`;
  const CHANGES = { regression: "--red", "above-ceiling": "--red", improvement: "--green",
    change: "--muted", flagged: "--red" };
  const VERDICTS = {
    p: ["passed", "circle", "--line-data"],
    f: ["failed", "x", "--red"],
    w: ["waived", "diamond", "--violet"],
    a: ["above its ceiling", "triangle-up", "--red"],
    n: ["not asserted", "circle-open", "--line-data"],
    "?": ["unknown", "square-open", "--muted"],
  };

  // Expands [index, value] of each change to a value for each index.
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
    if (low > high) return [0, 1];
    const pad = (high - low || Math.abs(high) || 1) * 0.08;
    return [low - pad, high + pad];
  };

  // -- history --------------------------------------------------------------------------------

  function history(place, figure) {
    const count = figure.value.length;
    const x = figure.time.map((minutes) => minutes * 60000);
    const [lower, upper, ceiling] = ["lower", "upper", "ceiling"].map(
      (name) => spread(figure[name], count));
    const lines = (figure.lines || []).map((one, which) => ({ ...one, color: "--red",
      dash: ["solid", "dash", "dot"][which % 3] }));
    if (figure.peers) {
      lines.push({ name: "median of its peers", value: figure.peers, color: "--amber",
        dash: "dash" });
    }
    const seen = [figure.value, figure.low || [], figure.high || [], ...lines.map((l) => l.value)];
    let [low, high] = range([...seen, lower, upper]);
    const peak = ceiling.filter(known).at(-1);
    const near = known(peak) && peak < high + 1.5 * (high - low) && peak > low - 1.5 * (high - low);
    if (near) [low, high] = range([...seen, lower, upper, ceiling]);

    const traces = [];
    const areas = [];
    const slack = Math.max((x[count - 1] - x[0]) * 0.02, 43200000);
    const edges = [x[0] - slack, x[count - 1] + slack];
    // The bounds of a single session are lines over the whole width.
    const line = (name, values, dash, color, width = 1) => traces.push({
      x: count > 1 ? x : edges, y: count > 1 ? values : [values[0], values[0]], name,
      line: { dash, color, width, step: true },
    });

    // The area within the bounds, one for each stretch of equal bounds.
    for (let from = 0; from < count;) {
      let to = from + 1;
      while (to < count && lower[to] === lower[from] && upper[to] === upper[from]) to += 1;
      if (known(lower[from]) || known(upper[from])) {
        areas.push({
          x: count > 1 ? [x[from], x[Math.min(to, count - 1)]] : edges, color: "--band",
          y: [known(lower[from]) ? lower[from] : low, known(upper[from]) ? upper[from] : high],
        });
      }
      from = to;
    }
    if (lower.some(known)) line("lower bound", lower, "solid", "--bound", 1.2);
    if (upper.some(known)) line("upper bound", upper, "solid", "--bound", 1.2);
    if (known(figure.target)) {
      line("reference", new Array(count).fill(figure.target), "dot", "--bound");
    }
    if (near) line("ceiling", ceiling, "dashdot", "--red");
    else if (known(peak)) {
      line(`ceiling ${number(peak)} ${figure.unit}, off the scale`,
        new Array(count).fill(null), "dashdot", "--red");
    }

    if (figure.low) {
      traces.push({ x, y: figure.high, low: figure.low, fill: "--range",
        name: "minimum to maximum" });
    }
    traces.push({ x, y: figure.value, line: { color: "--line-data" } });
    lines.forEach((one) => traces.push({
      x, y: one.value, name: one.name, gaps: false,
      line: { color: one.color, dash: one.dash },
      marker: { color: one.color, size: 4 },
      hint: one.value.map((v, i) => [`${number(v)} ${figure.unit}`, one.name,
        stamp(figure.time[i])]),
    }));

    const builds = spread(figure.build, count);
    const hosts = spread(figure.hosts, count);
    const letters = [...figure.verdict];
    for (const [letter, [name, symbol, color]] of Object.entries(VERDICTS)) {
      const places = letters.flatMap((l, i) => (l === letter ? [i] : []));
      if (!places.length) continue;
      traces.push({
        x: places.map((i) => x[i]), y: places.map((i) => figure.value[i]),
        name: !figure.low ? name : letter === "p" ? "median" : `median, some ${name}`,
        marker: { symbol, color, size: symbol.startsWith("circle") ? 5 : 8 },
        page: places.map((i) => data.pages[figure.session[i]]),
        hint: places.map((i) => [
          `${number(figure.value[i])} ${figure.unit}, ${name}`,
          stamp(figure.time[i]), figure.session[i],
          hosts[i] ? `on ${hosts[i].slice(0, 60)}` : "",
          builds[i] ? `build ${builds[i]}` : "",
        ].filter(Boolean)),
      });
    }

    const changes = (figure.build || []).slice(1).filter(([, build]) => build);
    if (changes.length) {
      traces.push({
        x: changes.map(([at]) => x[at]), y: changes.map(() => low), foot: true, name: "new build",
        marker: { symbol: "triangle-up", color: "--amber" },
        hint: changes.map(([at, build]) => [`build ${build}`, `since ${stamp(figure.time[at])}`]),
      });
    }
    figure.changes.filter((change) => known(change.until)).forEach((change) => areas.push({
      x: [change.time * 60000, change.until * 60000], color: "--range" }));
    return plot(place, {
      x: { time: true, range: edges }, y: { title: figure.unit, range: [low, high] },
      traces, areas, rules: figure.changes.map((change) => ({
        x: change.time * 60000, color: CHANGES[change.kind] || "--amber",
        text: [change.kind.replace("-", " "), known(change.size) && percent(change.size),
          change.node].filter(Boolean).join(" "),
      })),
    });
  }

  // -- over nodes -----------------------------------------------------------------------------

  function nodes(place, figure) {
    const { name, value } = figure.nodes;
    const last = figure.value.length - 1;
    const points = { x: [], y: [], hint: [] };
    const now = { x: [], y: [], hint: [] };
    const medians = value.map((pairs) => median(pairs.map(([, v]) => v)));
    value.forEach((pairs, which) => pairs.forEach(([at, v]) => {
      const into = at === last ? now : points;
      into.x.push(which);
      into.y.push(v);
      into.hint.push([`${number(v)} ${figure.unit}`, name[which], stamp(figure.time[at])]);
    }));
    const fleet = median(medians);
    const edges = [-0.5, name.length - 0.5];
    return plot(place, {
      x: { range: edges, ticks: name.map((n, i) => [i, n.slice(0, 24)]),
        title: `${name.length} nodes, by name` },
      y: { title: figure.unit, range: range([points.y, now.y]) },
      traces: [
        { x: edges, y: [fleet, fleet], name: "median of all",
          line: { color: "--bound", dash: "dot" } },
        { ...points, name: "earlier sessions",
          marker: { color: "--line-data", opacity: 0.45, size: 5 } },
        { x: name.map((_, i) => i), y: medians, name: "median of each",
          marker: { symbol: "line-ew", color: "--text" } },
        { ...now, name: "latest session",
          marker: { symbol: "diamond", color: "--accent", size: 7 } },
      ],
    });
  }

  // -- over message sizes ---------------------------------------------------------------------

  function curve(place, one) {
    const share = (values) => values.map((v, i) =>
      (known(v) && one.usual[i] ? (v / one.usual[i] - 1) * 100 : null));
    // A logarithmic axis.
    const x = one.size.map(Math.log2);
    const [latest, lower, upper] = [one.latest, one.lower, one.upper].map(share);
    const bound = (name, y) => ({ x, y, name, line: { color: "--bound", width: 1.2 } });
    return plot(place, {
      x: { range: range([x]), ticks: x.map((at, i) => [at, one.label[i]]) },
      y: { title: "against usual, %", range: range([latest, lower, upper, [0]]) },
      traces: [
        ...(lower.some(known) ? [bound("lower bound", lower)] : []),
        ...(upper.some(known) ? [bound("upper bound", upper)] : []),
        { x, y: x.map(() => 0), name: "usual", line: { color: "--muted", dash: "dot" } },
        { x, y: latest, name: "latest", line: { color: "--accent", width: 2 },
          marker: { color: "--accent", size: 7 },
          hint: one.latest.map((v, i) => [`${number(v)} ${one.unit}`, one.label[i],
            `usual ${number(one.usual[i])}`]) },
      ],
    });
  }

  // -- tables ---------------------------------------------------------------------------------

  const link = (textContent, href) => made("a", { textContent, href });
  const cell = (kind, content, isNumber, more) =>
    made(kind, { className: isNumber ? "num" : "", ...more }, content);
  // Of each column: its heading, its cell of the row of a number, and whether it has numbers.
  const table = (title, columns, rows) => made("table", {},
    made("caption", { className: "hidden" }, title),
    made("thead", {}, made("tr", {},
      ...columns.map(([head, , isNumber]) => cell("th", head, isNumber, { scope: "col" })))),
    made("tbody", {}, ...rows.map((row) => made("tr", {}, ...columns.map(([, of, isNumber], at) =>
      cell(at ? "td" : "th", of(row), isNumber, !at && { scope: "row" }))))));

  const tables = {
    history(figure) {
      const [lower, upper, ceiling, reference, build, hosts, worst] =
        ["lower", "upper", "ceiling", "reference", "build", "hosts", "worst"].map(
          (name) => spread(figure[name], figure.value.length));
      const several = Boolean(figure.low);
      const columns = [
        ["Ended", (i) => stamp(figure.time[i])],
        ["Session", (i) => {
          const page = data.pages[figure.session[i]];
          return page ? link(figure.session[i], page) : figure.session[i];
        }],
        [`${several ? "Median" : "Value"}, ${figure.unit}`, (i) => number(figure.value[i]), true],
        several && ["Minimum", (i) => number(figure.low[i]), true],
        several && ["Maximum", (i) => number(figure.high[i]), true],
        several && ["Worst", (i) => worst[i]],
        several && ["Count", (i) => String(figure.count[i]), true],
        figure.peers && ["Median of its peers", (i) => number(figure.peers[i]), true],
        ["At least", (i) => number(lower[i]), true],
        ["At most", (i) => number(upper[i]), true],
        ["Ceiling", (i) => number(ceiling[i]), true],
        ["Verdict", (i) => VERDICTS[figure.verdict[i]][0]],
        !several && ["Reference", (i) => {
          const source = data.references[reference[i]];
          return source ? link(reference[i], source) : reference[i] || "";
        }],
        ["Build", (i) => build[i] || ""],
        !several && ["Nodes", (i) => hosts[i] || ""],
      ].filter(Boolean);
      return table(`History of ${figure.name}`, columns, [...figure.value.keys()].reverse());
    },
    nodes(figure) {
      const { name, value } = figure.nodes;
      const values = value.map((pairs) => pairs.map(([, v]) => v));
      return table(`${figure.name} at each node`, [
        ["Node", (i) => name[i]],
        ["Sessions", (i) => String(values[i].length), true],
        ["Minimum", (i) => number(Math.min(...values[i])), true],
        ["Median", (i) => number(median(values[i])), true],
        ["Maximum", (i) => number(Math.max(...values[i])), true],
        [`Latest, ${figure.unit}`, (i) => number(values[i].at(-1)), true],
      ], [...name.keys()]);
    },
  };

  // -- drawing ---------------------------------------------------------------------------------

  const kinds = { history, nodes, curve };
  const rounded = (digits) => (end) => Number(end.toPrecision(digits));
  const chart = (place) => {
    if (place.chart) return place.chart;
    const { kind, index } = place.dataset;
    const name = `${place.closest(".figure").id}.${kind}`;
    const made = kinds[kind](place, (kind === "curve" ? data.curves : data.figures)[index]);
    // Its zoom is in the address of the page: the ends of both axes.
    const ends = (address.get("zoom", name) ?? "").split(",").map(Number);
    if (ends.length === 4 && ends.every(Number.isFinite) && ends[0] < ends[1] &&
        ends[2] < ends[3]) {
      made.zoom({ x: ends.slice(0, 2), y: ends.slice(2) });
    }
    place.addEventListener("zoomed", ({ detail: view }) => address.set("zoom", name,
      view && [...view.x.map(rounded(13)), ...view.y.map(rounded(7))].join()));
    return made;
  };
  // The width of the paper is not known yet before the page is printed.
  const printed = (place) => {
    if (!place.closest(".charts")?.querySelector("[data-kind=nodes]")) return 680;
    return place.dataset.kind === "nodes" ? 265 : 400;
  };
  let paper = false;
  const draw = (place) => (paper ? chart(place).resize(printed(place), 200)
    : chart(place).resize(place.clientWidth, place.clientHeight));
  const all = (onPaper) => {
    paper = onPaper;
    charts.forEach(draw);
  };
  const sized = new ResizeObserver((entries) => entries.forEach(({ target }) => draw(target)));
  const watch = new IntersectionObserver((entries) => {
    entries.filter((entry) => entry.isIntersecting).forEach(({ target }) => {
      watch.unobserve(target);
      sized.observe(target);
    });
  }, { rootMargin: "500px" });
  charts.forEach((place) => {
    place.tabIndex = 0;
    place.setAttribute("role", "application");
    place.setAttribute("aria-label", `${place.getAttribute("aria-label")} The arrow keys move over ` +
      "the marks, Enter opens the session of one, plus and minus zoom, and 0 shows all.");
    watch.observe(place);
  });

  // On paper, all charts are drawn.
  addEventListener("beforeprint", () => all(true));
  addEventListener("afterprint", () => all(false));

  document.querySelectorAll("details[data-table]").forEach((details) => {
    details.addEventListener("toggle", () => {
      const place = details.querySelector(".scroll");
      if (details.open && !place.firstChild) {
        place.append(tables[details.dataset.table](data.figures[Number(details.dataset.index)]));
        window.tables.enhance(details);
      }
    });
  });
})();
