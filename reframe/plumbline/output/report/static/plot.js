// A chart in SVG: areas, lines and marks over two axes, with labels, a legend, hints and zoom. Its
// colours are the style sheet's, so that theme and paper ask for no new drawing.
"use strict";
window.plot = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const DASHES = { dot: "2 2", dash: "5 3", dashdot: "6 2 2 2" };
  const SHAPES = {
    circle: "M-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0", "circle-open": "M-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0",
    x: "M-3-3l6 6m0-6l-6 6", diamond: "M0-4l4 4-4 4-4-4z", "triangle-up": "M0-4l4 8h-8z",
    "square-open": "M-3-3h6v6h-6z", "line-ew": "M-7 0h14",
  };
  const REACH = 20; // Pixels from a mark at which its hint is shown.
  const DRAG = 8; // Pixels below which a drag is a click.
  const NARROW = 24; // A zoom less high, or less wide, than this is along one axis alone.

  const known = (value) => value !== null && value !== undefined;
  const hue = (name) => (name ? `var(${name})` : "none");
  const pen = document.createElement("canvas").getContext("2d");
  const widest = (texts) => {
    pen.font = `12px ${getComputedStyle(document.documentElement).getPropertyValue("--sans")}`;
    return Math.max(0, ...texts.map((text) => pen.measureText(text).width));
  };

  // -- parts ------------------------------------------------------------------------------------

  const stroke = (path, { color, width = 1, dash }) => path.style("stroke", hue(color))
    .style("fill", "none").style("stroke-width", width).attr("stroke-dasharray", DASHES[dash]);
  const mark = (path, { symbol = "circle", color, opacity }) => {
    const open = symbol.endsWith("open") || symbol === "x" || symbol === "line-ew";
    return path.attr("d", SHAPES[symbol]).style("opacity", opacity)
      .style("stroke", hue(open && color)).style("fill", hue(!open && color))
      .style("stroke-width", symbol === "line-ew" ? 2 : 1.5);
  };

  function swatch(trace) {
    const svg = d3.select(document.createElementNS(SVG, "svg")).attr("viewBox", "-11 -5 22 10")
      .attr("width", 22).attr("height", 10);
    if (trace.fill) svg.append("path").attr("d", "M-11-4h22v8h-22z").style("fill", hue(trace.fill));
    if (trace.line) stroke(svg.append("path").attr("d", "M-11 0h22"), trace.line);
    if (trace.marker) mark(svg.append("path"), trace.marker);
    return svg.node();
  }

  function legend(place, traces) {
    const list = made("ul", { className: "legend" }, ...traces.filter((trace) => trace.name)
      .map((trace) => made("li", {}, swatch(trace), trace.name)));
    list.setAttribute("aria-hidden", "true");
    if (place.nextElementSibling?.className === "legend") place.nextElementSibling.remove();
    place.after(list);
  }

  // Dates as short as the ticks allow, always with what tells them apart from another year's.
  function dates(ticks) {
    const midnight = ticks.every((tick) => tick % 86400000 === 0);
    const parts = !midnight ? { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" }
      : ticks.every((tick) => tick.getUTCDate() === 1) ? { month: "short", year: "numeric" }
        : { month: "short", day: "numeric", year: "numeric" };
    const format = new Intl.DateTimeFormat("en-US", { ...parts, hourCycle: "h23",
      timeZone: "UTC" });
    return ticks.map((tick) => [tick, format.format(tick)]);
  }

  // Labels that would lie on each other stand in rows, the last rules' first; what finds no place
  // in three has its line alone.
  function stacked(rules, x, width) {
    const rows = [[], [], []];
    [...rules].reverse().forEach((rule) => {
      const at = x(rule.x);
      if (at < 0 || at > width) return;
      const long = widest([rule.text]);
      const from = Math.max(0, Math.min(at - long / 2, width - long));
      const clear = (other) => other.to + 8 < from || from + long + 8 < other.from;
      rows.find((row) => row.every(clear))?.push({ ...rule, from, to: from + long });
    });
    return rows.filter((row) => row.length);
  }

  // -- a chart ----------------------------------------------------------------------------------

  /* Draws a chart into a place, in the stead of an earlier one.
     x: {range, time | ticks: [[at, label]], title}; y: {range, title}; traces: [{x, y, and as
     wanted: name (in the legend), line: {color, width, dash, step}, gaps: false to draw through
     them, fill with low: an area's colour and lower edge, marker: {symbol, color, size, opacity},
     foot: true at the foot of the chart, hint: lines of text, page: to open}]; areas: [{x, y,
     color}], of two ends each; rules: [{x, color, text}], upright and dashed. */
  return function plot(place, { x, y, traces, areas = [], rules = [] }) {
    let view = { x: x.range, y: y.range };
    let size, frame, across, up, points;
    const svg = d3.select(place).html("").append("svg");
    const hint = d3.select(place).append("div").attr("class", "hint").attr("hidden", "");
    // What a key came to, for screen readers.
    const spoken = d3.select(place.parentNode).append("p").attr("class", "hidden")
      .attr("role", "status");
    legend(place, traces);

    function draw() {
      const count = Math.max(2, Math.round(size.height / 60));
      up = d3.scaleLinear(view.y, [0, 1]);
      const values = up.ticks(count);
      const format = up.tickFormat(count);
      const left = 34 + widest(values.map(format));
      const width = Math.max(1, size.width - left - 12);
      across = (x.time ? d3.scaleUtc : d3.scaleLinear)(view.x, [0, width]);
      const ticks = x.ticks ? x.ticks.filter(([at]) => at >= view.x[0] && at <= view.x[1])
        : dates(across.ticks(Math.max(2, width / 90)));
      const gaps = ticks.slice(1).map(([at], i) => across(at) - across(ticks[i][0]));
      const room = Math.min(width, ...gaps);
      const long = widest(ticks.map(([, label]) => label));
      // Names that are too long are turned; of dates, and of what is still too narrow, each other,
      // third ... is left.
      const turned = !x.time && long + 6 > room;
      const crowded = room < 12;
      const every = Math.ceil((x.time ? long + 12 : 12) / room);
      const labels = crowded && x.title ? [] : ticks.filter((_, i) => i % every === 0);
      const rows = stacked(rules, across, width);
      const top = 14 + 14 * rows.length;
      const bottom = turned && labels.length ? 16 + long * 0.87 : 30;
      const height = Math.max(1, size.height - top - bottom);
      up.range([height, 0]);
      frame = { left, top, width, height };

      svg.attr("width", size.width).attr("height", size.height).selectAll("*").remove();
      const grid = svg.append("g").attr("class", "axis")
        .attr("transform", `translate(${left},${top})`);
      grid.call(d3.axisLeft(up).tickValues(values).tickFormat(format).tickSizeOuter(0));
      grid.selectAll(".tick").append("line").attr("class", "grid").attr("x2", width);
      const foot = svg.append("g").attr("class", "axis")
        .attr("transform", `translate(${left},${top + height})`);
      const named = new Map(labels.map(([at, label]) => [Number(at), label]));
      foot.call(d3.axisBottom(across).tickValues(labels.map(([at]) => at))
        .tickFormat((at) => named.get(Number(at))).tickSizeOuter(0));
      if (turned) {
        foot.selectAll("text").attr("transform", "translate(-6,4) rotate(-60)")
          .style("text-anchor", "end");
      }
      const title = (text) => svg.append("text").attr("class", "title").text(text);
      title(y.title).attr("transform", `translate(13,${top + height / 2}) rotate(-90)`);
      if (x.title && crowded) title(x.title).attr("x", left + width / 2).attr("y", size.height - 8);

      // A picture in the picture cuts what a zoom leaves outside.
      const inner = svg.append("svg").attr("class", "plot").attr("x", left).attr("y", top)
        .attr("width", width).attr("height", height);
      areas.forEach(({ x: [from, to], y: [low, high] = view.y, color }) => inner.append("rect")
        .attr("x", across(from)).attr("width", Math.max(0, across(to) - across(from)))
        .attr("y", up(high)).attr("height", Math.max(0, up(low) - up(high)))
        .style("fill", hue(color)));
      points = [];
      traces.forEach((trace) => drawn(inner, trace, crowded));
      rows.forEach((row, at) => row.forEach(({ color, text, from }) => svg.append("text")
        .attr("class", "rule").attr("x", left + from).attr("y", top - 5 - 14 * at)
        .style("fill", hue(color)).text(text)));
      rules.forEach(({ x: at, color }) => stroke(inner.append("path")
        .attr("d", `M${across(at)} ${height}V0`), { color, width: 1.2, dash: "dash" }));
      inner.append("circle").attr("class", "cursor");
      inner.append("rect").attr("class", "zoom");
    }

    function drawn(inner, trace, crowded) {
      const where = (i) => [across(trace.x[i]), trace.foot ? frame.height - 4 : up(trace.y[i])];
      const there = (i) => known(trace.y[i]);
      const every = trace.x.map((_, i) => i);
      const path = (make, kept) => inner.append("path").attr("d",
        make.defined(there).x((i) => where(i)[0])(kept));
      if (trace.fill) {
        path(d3.area().y0((i) => up(trace.low[i])).y1((i) => where(i)[1]), every)
          .style("fill", hue(trace.fill));
      }
      if (trace.line) {
        const curve = trace.line.step ? d3.curveStepAfter : d3.curveLinear;
        stroke(path(d3.line().y((i) => where(i)[1]).curve(curve),
          trace.gaps === false ? every.filter(there) : every), trace.line);
      }
      if (!trace.marker) return;
      const { size: large = 6 } = trace.marker;
      every.filter(there).forEach((i) => {
        const [left, top] = where(i);
        mark(inner.append("path"), trace.marker).attr("class", "mark")
          .attr("transform", `translate(${left},${top}) scale(${large / (crowded ? 10 : 6)})`);
        if (trace.hint) {
          points.push({ left, top, lines: trace.hint[i], page: trace.page?.[i], trace, i });
        }
      });
    }

    // -- pointers ---------------------------------------------------------------------------

    let start = null; // Where a drag began.
    let shown = null; // The point whose hint is shown.
    let before = null; // The one that was when a finger came down.
    const at = (event) => {
      const { left, top } = svg.node().getBoundingClientRect();
      const within = (value, end) => Math.max(0, Math.min(value, end));
      return [within(event.clientX - left - frame.left, frame.width),
        within(event.clientY - top - frame.top, frame.height)];
    };
    const far = (one, other) => Math.hypot(one[0] - other[0], one[1] - other[1]) >= DRAG;
    const inside = ({ left, top }) => left >= 0 && left <= frame.width && top >= 0 &&
      top <= frame.height;
    const nearest = ([left, top]) => {
      let [found, least] = [null, REACH];
      for (const point of points) {
        const distance = Math.hypot(point.left - left, point.top - top);
        if (inside(point) && distance < least) [found, least] = [point, distance];
      }
      return found;
    };
    function tell(point) {
      shown = point;
      hint.attr("hidden", point ? null : "");
      svg.style("cursor", point?.page ? "pointer" : null);
      svg.select(".cursor").attr("r", point ? 8 : 0).attr("cx", point?.left ?? 0)
        .attr("cy", point?.top ?? 0);
      if (!point) return;
      hint.selectAll("div").data(point.lines).join("div").text((line) => line);
      const box = hint.node().getBoundingClientRect();
      const left = frame.left + point.left - box.width / 2;
      const above = frame.top + point.top - box.height - 10;
      hint.style("left", `${Math.max(0, Math.min(left, size.width - box.width))}px`)
        .style("top", `${above >= 0 ? above : frame.top + point.top + 10}px`);
    }
    // The two corners of a zoom: one along an axis is as high, or as wide, as the chart.
    const corners = (from, to) => [frame.width, frame.height].map((end, which) => {
      const [low, high] = [from[which], to[which]].sort((a, b) => a - b);
      const other = Math.abs(from[1 - which] - to[1 - which]);
      return high - low < NARROW && other >= high - low ? [0, end] : [low, high];
    });
    const zoom = (box) => {
      const [[left, right], [top, bottom]] = box;
      svg.select(".zoom").attr("x", left).attr("y", top).attr("width", right - left)
        .attr("height", bottom - top);
    };
    const zoomed = (detail) => place.dispatchEvent(new CustomEvent("zoomed", { detail }));
    const home = () => {
      view = { x: x.range, y: y.range };
      draw();
      zoomed(null);
    };
    const cancel = () => {
      start = null;
      zoom([[0, 0], [0, 0]]);
    };
    svg.on("pointerdown", (event) => {
      if (event.button) return;
      before = shown;
      start = at(event);
      svg.node().setPointerCapture(event.pointerId);
      tell(nearest(start));
    }).on("pointermove", (event) => {
      const now = at(event);
      if (!start) tell(nearest(now));
      else if (far(start, now)) {
        tell(null);
        zoom(corners(start, now));
      }
    }).on("pointerup", (event) => {
      if (!start) return;
      const now = at(event);
      if (far(start, now)) {
        const [[left, right], [top, bottom]] = corners(start, now);
        view = { x: [left, right].map(across.invert).map(Number),
          y: [bottom, top].map(up.invert) };
        draw();
        zoomed(view);
      } else if (shown?.page && (event.pointerType === "mouse" || shown === before)) {
        // A finger that has no hint yet asks for that first.
        location.href = shown.page;
      }
      cancel();
    }).on("pointercancel", cancel).on("pointerleave", (event) => {
      // A finger leaves as it is lifted: its hint stays.
      if (event.pointerType === "mouse") tell(null);
    }).on("dblclick", home);

    // -- keys -------------------------------------------------------------------------------

    const STEPS = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
    const clamp = (value, low, high) => Math.max(low, Math.min(value, high));
    const column = (point) => Math.round(point.left);

    // Left and right go to the next marks at about the same height, up and down to those of the
    // same session or node. The first key comes to the newest.
    function next(key) {
      const seen = points.filter(inside);
      if (!seen.length) return null;
      const columns = [...new Set(seen.map(column))].sort((one, other) => one - other);
      const from = shown ? columns.indexOf(column(shown)) : key === "Home" ? 0 : Infinity;
      const step = shown ? STEPS[key] ?? 0 : 0;
      const to = columns[clamp(from + step, 0, columns.length - 1)];
      const there = seen.filter((point) => column(point) === to)
        .sort((one, other) => one.top - other.top);
      if (!shown) return there.find((point) => point.page) ?? there[0];
      if (!(key in STEPS)) {
        const level = there.indexOf(shown) + (key === "ArrowUp" ? -1 : 1);
        return there[clamp(level, 0, there.length - 1)];
      }
      const away = (point) => Math.abs(point.top - shown.top);
      return there.reduce((found, point) => (away(point) < away(found) ? point : found));
    }
    // Along the horizontal axis, around the mark.
    function scale(factor) {
      const [[low, high], [from, to]] = [x.range, view.x];
      const width = (to - from) * factor;
      if (width >= high - low) {
        home();
        return;
      }
      const middle = shown ? Number(across.invert(shown.left)) : (from + to) / 2;
      const begin = clamp(middle - width / 2, low, high - width);
      view = { x: [begin, begin + width], y: view.y };
      draw();
      zoomed(view);
    }
    const zooms = { "+": () => scale(0.5), "=": () => scale(0.5), "-": () => scale(2), 0: home };
    d3.select(place).on("keydown", (event) => {
      const { key } = event;
      const arrow = key in STEPS || key === "ArrowUp" || key === "ArrowDown";
      if (event.ctrlKey || event.altKey || event.metaKey ||
          !(arrow || key in zooms || key === "Enter")) return;
      event.preventDefault();
      if (key === "Enter" && shown?.page) location.href = shown.page;
      if (arrow) {
        tell(next(key));
        spoken.text(shown?.lines.join(", ") ?? "");
      }
      if (key in zooms) {
        const kept = shown;
        zooms[key]();
        tell(points.find((point) => kept && point.trace === kept.trace && point.i === kept.i &&
          inside(point)) ?? null);
      }
    }).on("blur", () => tell(null));

    place.chart = {
      x, y, traces, areas, rules, frame: () => frame, view: () => view,
      zoom: (box) => { view = box; },
      resize(width, height) {
        size = { width, height };
        tell(null);
        draw();
      },
    };
    return place.chart;
  };
})();
