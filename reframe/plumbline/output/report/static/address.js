// What a reader chose on a page, in its address, so that it can be sent to a colleague: the zoom of a
// chart, the order and the filter of a table, and the filter of a list.
"use strict";
window.address = (() => {
  const chosen = new URLSearchParams(location.search);
  return {
    // The choice of a kind, of the chart or table of a name; null if there is none.
    get: (kind, name) => chosen.get(`${kind}.${name}`),
    set(kind, name, value) {
      if (value) chosen.set(`${kind}.${name}`, value);
      else chosen.delete(`${kind}.${name}`);
      const query = chosen.toString();
      history.replaceState(null, "",
        `${location.pathname}${query ? `?${query}` : ""}${location.hash}`);
    },
  };
})();
