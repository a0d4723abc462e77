// Sorts and filters tables. Without scripts they are read as they are; a table within closed details
// gets its controls when these are opened.
"use strict";
window.tables = (() => {
  const FEW = 5; // A table with fewer rows is seen at a glance, and needs no filter.
  const isGroup = (row) => row.classList.contains("group");
  const words = (text) => text.toLowerCase().split(/\s+/).filter(Boolean);

  // -- sorting ----------------------------------------------------------------------------------

  // The number at the beginning of a cell, as pages write it; or its text. Empty cells are last.
  const key = (row, column, numeric) => {
    const text = row.cells[column]?.textContent.trim() ?? "";
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
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.append(...head.childNodes);
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

  function filter(table, query) {
    const wanted = words(query);
    let shown = 0;
    for (const body of table.tBodies) {
      const rows = [...body.rows];
      const group = rows.find(isGroup)?.textContent ?? "";
      let some = false;
      rows.filter((row) => !isGroup(row)).forEach((row) => {
        const text = `${group} ${row.textContent}`.toLowerCase();
        row.hidden = !wanted.every((word) => text.includes(word));
        some ||= !row.hidden;
        shown += !row.hidden;
      });
      body.hidden = Boolean(wanted.length) && !some;
    }
    return shown;
  }

  function filterable(table, name, count) {
    const place = table.closest(".scroll") ?? table;
    const label = document.createElement("label");
    const input = document.createElement("input");
    const state = document.createElement("span");
    label.className = "filter";
    input.type = "search";
    input.autocomplete = "off";
    state.setAttribute("role", "status");
    label.append("Filter ", input);
    place.before(label);
    label.after(state);
    state.className = "filter-state muted";
    input.setAttribute("aria-label", `Filter ${name}`);
    const show = () => {
      const shown = filter(table, input.value);
      state.textContent = input.value.trim() ? `${shown} of ${count} rows` : "";
    };
    input.addEventListener("input", () => {
      show();
      address.set("filter", name, input.value.trim());
    });
    input.value = address.get("filter", name) ?? "";
    if (input.value) show();
  }

  // -- tables -----------------------------------------------------------------------------------

  function enhance(place) {
    for (const table of place.querySelectorAll("table")) {
      if (table.dataset.controls || table.closest("details:not([open])")) continue;
      table.dataset.controls = "on";
      const count = [...table.tBodies].flatMap((body) => [...body.rows])
        .filter((row) => !isGroup(row)).length;
      const name = table.closest(".scroll")?.getAttribute("aria-label") ?? "the table";
      if (count > 1) sortable(table, name);
      if (count >= FEW) filterable(table, name, count);
    }
  }

  document.addEventListener("toggle", (event) => enhance(event.target), true);
  document.addEventListener("DOMContentLoaded", () => enhance(document));
  return { enhance };
})();
