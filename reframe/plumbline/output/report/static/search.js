// The search page: the words of its field, in the index that is beside it.
"use strict";
(() => {
  const MOST = 50; // Of one kind, at most so many are listed.
  const { systems, checks, places, figures, nodes } = window.searchIndex;
  const input = document.getElementById("query");
  const state = document.getElementById("found");
  const results = document.getElementById("results");
  const every = document.getElementById("every");

  // Each entry: its name, what else is known of it, and its links.
  const about = ([system, name]) => `${name} · ${systems[system][0]}`;
  const kinds = [
    ["Systems", systems.map(([name, path]) => [name, "", [[name, path]]])],
    ["Checks", checks.map(([system, name, path]) =>
      [name, systems[system][0], [[name, path]]])],
    ["Nodes", nodes.map(([name, of, pages]) =>
      [name, "", [...pages.map(([system, path]) => [`flagged · ${systems[system][0]}`, path]),
        ...of.map((at) => [about(checks[at]), checks[at][2]])]])],
    ["Figures of merit", figures.map(([check, name, place, anchor]) =>
      [name, `${about(checks[check])} · ${places[place]}`,
        [[name, `${checks[check][2]}#${anchor}`]]])],
  ].map(([title, entries]) => [title, entries.map((entry) =>
    [...entry, `${entry[0]} ${entry[1]}`.toLowerCase()])]);

  const link = ([text, href]) => made("a", { href }, text);
  const muted = (text) => made("span", { className: "muted" }, text);
  const row = ([name, more, links]) => {
    const single = links.length === 1 && links[0][0] === name;
    return made("li", {}, ...(single ? [] : [made("strong", {}, name), ": "]),
      ...links.flatMap((one, at) => [at ? ", " : "", link(one)]),
      ...(more ? [muted(` ${more}`)] : []));
  };

  function found(entries, words) {
    const matching = entries.filter(([, , , text]) => words.every((word) => text.includes(word)));
    // Names that begin with the first word are first; else the order stays.
    const first = ([name]) => !name.toLowerCase().startsWith(words[0]);
    return matching.sort((one, other) => first(one) - first(other));
  }

  function show() {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    every.hidden = words.length > 0;
    results.replaceChildren();
    let count = 0;
    for (const [title, entries] of words.length ? kinds : []) {
      const matching = found(entries, words);
      count += matching.length;
      if (!matching.length) continue;
      const all = made("span", { className: "count" }, String(matching.length));
      const list = made("ul", { className: "plain" }, ...matching.slice(0, MOST).map(row));
      const section = made("section", {}, made("h2", {}, `${title} `, all), list);
      if (matching.length > MOST) section.append(made("p", {}, `The first ${MOST}: add a word.`));
      results.append(section);
    }
    state.textContent = words.length ? `${count} found` : "";
    history.replaceState(null, "", words.length ? `#${encodeURIComponent(input.value)}` : "#");
  }

  document.getElementById("search").hidden = false;
  const given = () => {
    try {
      input.value = decodeURIComponent(location.hash.slice(1));
    } catch (error) {
      input.value = ""; // Not what this page wrote.
    }
    show();
  };
  if (location.hash.length > 1) given();
  addEventListener("hashchange", given);
  input.addEventListener("input", show);
  input.focus();
})();
