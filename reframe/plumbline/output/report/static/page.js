// What the scripts of several pages share.
"use strict";
// A new element with these properties and this content: texts and elements.
window.made = (kind, properties = {}, ...content) => {
  const element = Object.assign(document.createElement(kind), properties);
  element.append(...content);
  return element;
};
window.number = (value) => (value === null || value === undefined ? ""
  : value.toLocaleString("en-US", { maximumSignificantDigits: 5 }));
window.median = (values) => {
  const sorted = [...values].sort((one, other) => one - other);
  const half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
};
// What a reader chose, in the address of the page, so that it can be sent to a colleague: the zoom
// of a chart, the order and the filter of a table, and the filter of a list.
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
