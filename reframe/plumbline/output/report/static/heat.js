// The heat maps of a check's page: what a cell is, by pointer or by keyboard. The map itself is an
// image, which needs no script; its numbers are read when they are first asked for.
"use strict";
(() => {
  const waiting = {};
  // A page on a disk may read no other file than a script.
  window.heatMap = (name, data) => waiting[name](data);

  const load = (place) => {
    const { name, source } = place.dataset;
    place.loading ??= new Promise((done) => {
      waiting[name] = done;
      document.head.append(made("script", { src: source, onerror({ target }) {
        place.closest(".heat").querySelector(".heat-cell").textContent =
          `${target.src} cannot be read. Copy the whole site, or make it again.`;
      } }));
    });
    return place.loading;
  };

  function enhance(place) {
    const { name, label } = place.dataset;
    const state = place.closest(".heat").querySelector(".heat-cell");
    const cursor = made("div", { className: "heat-cursor", hidden: true });
    let at = null; // Node and night.
    place.append(cursor);
    place.tabIndex = 0;
    place.setAttribute("role", "application");
    place.setAttribute("aria-label", `Heat map of ${label}: the arrow keys move over nodes and ` +
      "nights, Enter opens the page of the node or of the session");
    state.textContent = "Point at a cell, or move with the arrow keys, for its value.";

    const describe = (data) => {
      const [node, night] = at;
      const [share, usual] = [data.share[node][night], data.usual[node]];
      // Of a share in thousandths, no more digits of the value are known.
      const place = 10 ** Math.ceil(Math.log10(Math.abs(usual) / 1000));
      const near = place * Math.round(usual * (1 + share / 1000) / place);
      const value = share === null ? "not measured"
        : !usual ? `${number(share)} ${data.unit}, usually 0`
        : `${number(near)} ${data.unit}, ` +
          `${share > 0 ? "+" : share < 0 ? "\u2212" : ""}${Math.abs(share / 10).toFixed(1)} % ` +
          `against its usual ${number(usual)}`;
      const flagged = data.flagged[data.nodes[node]] ? "; flagged" : "";
      return `${data.nodes[node]}, ${data.nights[night]}: ${value}${flagged}`;
    };
    const show = (data, node, night, keep) => {
      const within = (value, count) => Math.max(0, Math.min(value, count - 1));
      at = [within(node, data.nodes.length), within(night, data.nights.length)];
      const share = (place_, count) => `${100 * place_ / count}%`;
      cursor.style.top = share(at[0], data.nodes.length);
      cursor.style.height = share(1, data.nodes.length);
      cursor.style.left = share(at[1], data.nights.length);
      cursor.style.width = share(1, data.nights.length);
      cursor.hidden = false;
      state.textContent = describe(data);
      if (keep) address.set("cell", name, `${data.nodes[at[0]]},${data.nights[at[1]]}`);
    };
    const open = (data) => {
      if (!at) return;
      const page = data.flagged[data.nodes[at[0]]];
      if (page) location.href = `../${page}`;
      else if (data.pages[at[1]]) location.href = `../${data.pages[at[1]]}`;
    };
    // Where the map is now: charts may move it while its data are read.
    const atPointer = async (event, keep) => {
      const box = place.getBoundingClientRect();
      const data = await load(place);
      const of = (value, length, count) => Math.floor((value / length) * count);
      show(data, of(event.clientY - box.top, box.height, data.nodes.length),
        of(event.clientX - box.left, box.width, data.nights.length), keep);
    };

    place.addEventListener("focus", async () => {
      const data = await load(place);
      if (!at) show(data, 0, data.nights.length - 1, false);
    });
    place.addEventListener("pointermove", (event) => atPointer(event, false));
    place.addEventListener("click", (event) => atPointer(event, true));
    place.addEventListener("dblclick", async () => open(await load(place)));
    place.addEventListener("keydown", async (event) => {
      const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1],
        PageUp: [-20, 0], PageDown: [20, 0], Home: [0, -Infinity], End: [0, Infinity] }[event.key];
      if (!step && event.key !== "Enter") return;
      event.preventDefault();
      const data = await load(place);
      if (!step) open(data);
      else if (at) show(data, at[0] + step[0], at[1] + step[1], true);
    });

    // The cell that an address names.
    const [node, night] = (address.get("cell", name) ?? "").split(",");
    if (night) {
      load(place).then((data) => {
        const found = [data.nodes.indexOf(node), data.nights.indexOf(night)];
        if (Math.min(...found) >= 0) show(data, ...found, false);
      });
    }
  }

  document.querySelectorAll(".heat-map").forEach(enhance);
})();
