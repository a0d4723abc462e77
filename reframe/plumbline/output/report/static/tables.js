// Sorts and filters tables, and filters lists that have a name. Without scripts they are read as
// they are; what is within closed details gets its controls when these are opened.
"use strict";
window.tables = (() => {
  const FEW = 5; // What has fewer rows or entries is seen at a glance, and needs no filter.
  const isGroup = (row) => row.classList.contains("group");
  // The bodies of a table, or a list: each with the text of its heading, and its rows.
  const bodiesOf = (place) => [...(place.tBodies ?? [place])].map((body) => {
    const rows = [...(body.rows ?? body.children)];
    return [body, rows.find(isGroup)?.textContent ?? "", rows.filter((row) => !isGroup(row))];
  });
  const words = (text) => text.toLowerCase().split(/\s+/).filter(Boolean);

  // -- sorting ----------------------------------------------------------------------------------

  // The number that a cell is sorted by, or that is at its beginning, as pages write it; or its text.
  // Empty cells are last.
  const key = (row, column, numeric) => {
    const cell = row.cells[column];
    const text = cell?.dataset.sort ?? cell?.textContent.trim() ?? "";
    if (!numeric) return text || null;
    const found = text.replace("\u2212", "-").replace(/,/g, "").match(/[-+]?\d+(\.\d+)?(e[-+]\d+)?/i);
    return found ? Number(found[0]) : null;
  };
  const compare = (one, other, sign) => {
    if (one === null || other === null) return (one === null) - (other === null);
    const order = typeof one === "number" ? one - other
      : one.localeCompare(other, "en", { numeric: true });
    return sign * order;
  };

  function sort(table, column, sign, numeric) {
    const bodies = [...table.tBodies].map((body) => {
      const rows = [...body.rows].filter((row) => !isGroup(row))
        .map((row) => [key(row, column, numeric), row]);
      rows.sort(([one], [other]) => compare(one, other, sign));
      body.append(...rows.map(([, row]) => row));
      return [rows[0]?.[0] ?? null, body];
    });
    // Groups follow their first rows.
    bodies.sort(([one], [other]) => compare(one, other, sign));
    table.append(...bodies.map(([, body]) => body));
  }

  function sortable(table, name) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      // A heading that is a link stays what it is, and so does that of pictures.
      const rows = [...table.tBodies].flatMap((body) => [...body.rows]);
      const some = rows.some((row) => !isGroup(row) && row.cells[column]?.textContent.trim());
      if (!some || head.querySelector("a")) return;
      const button = made("button", { type: "button", className: "sort" }, ...head.childNodes);
      head.append(button);
      const numeric = head.classList.contains("num");
      const order = (up) => {
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        sort(table, column, up ? 1 : -1, numeric);
      };
      button.addEventListener("click", () => {
        // Of numbers, the largest are first.
        const up = head.ariaSort ? head.ariaSort !== "ascending" : !numeric;
        order(up);
        address.set("sort", name, `${up ? "" : "-"}${column + 1}`);
      });
      const chosen = Number(address.get("sort", name));
      if (Math.abs(chosen) === column + 1) order(chosen > 0);
    });
  }

  // -- filtering --------------------------------------------------------------------------------

  function filter(place, query) {
    const wanted = words(query);
    let shown = 0;
    for (const [body, heading, rows] of bodiesOf(place)) {
      let some = false;
      rows.forEach((row) => {
        // What a row abbreviates is in its data.
        const text = `${heading} ${row.textContent} ${row.dataset.words ?? ""}`.toLowerCase();
        row.hidden = !wanted.every((word) => text.includes(word));
        some ||= !row.hidden;
        shown += !row.hidden;
      });
      body.hidden = Boolean(wanted.length) && !some;
    }
    return shown;
  }

  function filterable(place, name, count) {
    const input = made("input", { type: "search", autocomplete: "off" });
    const state = made("span", { className: "filter-state muted" });
    state.setAttribute("role", "status");
    (place.closest(".scroll") ?? place).before(
      made("label", { className: "filter" }, "Filter ", input), state);
    input.setAttribute("aria-label", `Filter ${name}`);
    const show = () => {
      const shown = filter(place, input.value);
      const of = `${shown} of ${count} ${place.tBodies ? "rows" : "entries"}`;
      state.textContent = input.value.trim() ? of : "";
    };
    input.addEventListener("input", () => {
      show();
      address.set("filter", name, input.value.trim());
    });
    input.value = address.get("filter", name) ?? "";
    if (input.value) show();
  }

  // -- tables and lists -------------------------------------------------------------------------

  function enhance(place) {
    for (const one of place.querySelectorAll("table, .rows[aria-label]")) {
      if (one.dataset.controls || one.closest("details:not([open])")) continue;
      one.dataset.controls = "on";
      const count = bodiesOf(one).flatMap(([, , rows]) => rows).length;
      const name = (one.closest(".scroll") ?? one).getAttribute("aria-label") ?? "the table";
      if (one.tBodies && count > 1) sortable(one, name);
      if (count >= FEW) filterable(one, name, count);
    }
  }

  document.addEventListener("toggle", (event) => enhance(event.target), true);
  document.addEventListener("DOMContentLoaded", () => enhance(document));
  return { enhance };
})();
