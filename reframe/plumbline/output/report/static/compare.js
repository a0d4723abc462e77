// The page that compares two nights, sessions or builds: the medians of both sides, figure by
// figure, with the number of their sessions.
// What is chosen is in the address.
"use strict";
(() => {
  const MOST = 500; // At most so many figures are listed: those that differ most.
  const FEW = 8; // A side of at most so many sessions is named by them, else by its days.
  const LEAST = 3; // Sessions a side that `plumbline compare` needs.
  const { systems, checks, places, figures, units } = window.searchIndex;
  const { sessions, builds } = JSON.parse(document.getElementById("sides").textContent);
  const [kind, a, b] = ["kind", "a", "b"].map((id) => document.getElementById(id));
  const state = document.getElementById("found");
  const single = document.getElementById("single");
  const command = document.getElementById("command");

  const day = (session) => (/^\d{8}T/.test(session)
    ? `${session.slice(0, 4)}-${session.slice(4, 6)}-${session.slice(6, 8)}` : session);
  const grouped = (list, key) => list.reduce((found, one) =>
    found.set(key(one), [...(found.get(key(one)) ?? []), one]), new Map());
  // The sides of each kind: id, group, text, files, sessions (of a build, the first and the last).
  const sides = {
    session: sessions.map(([id, system, file]) =>
      ({ id, system, text: id, files: [file], sessions: [id], count: 1 })),
    night: [...grouped(sessions, ([id, system]) => `${day(id)} ${system}`)].map(([id, listed]) =>
      ({ id, system: listed[0][1], text: day(listed[0][0]), files: listed.map(([, , file]) => file),
        sessions: listed.map(([name]) => name), count: listed.length })),
    build: builds.map(([id, system, file, ends, count, span]) =>
      ({ id, system, text: `${id}, ${day(ends[0])} to ${day(ends.at(-1))}`, files: [file],
        sessions: ends, count, span })),
  };

  // -- the data of a side ---------------------------------------------------------------------

  const loaded = {};
  const waiting = {};
  window.side = (file, data) => waiting[file](data);
  const load = (file) => {
    loaded[file] ??= new Promise((done, failed) => {
      waiting[file] = done;
      document.head.append(made("script", { src: `data/sides/${file}.js`,
        onerror: ({ target }) => failed(target.src) }));
    });
    return loaded[file];
  };
  // Of each figure of a side: the median over its sessions, their number, and the ends of their
  // values. A session's figure may have several values, of one node each.
  const measured = async (side) => {
    const found = new Map();
    for (const data of await Promise.all(side.files.map(load))) {
      data.figures.forEach((figure, at) => {
        const value = data.medians[at];
        const one = found.get(figure) ?? { values: [], files: new Set(), low: value, high: value };
        one.values.push(value);
        one.count = data.counts[at] ?? one.files.add(data).size;
        one.low = Math.min(one.low, data.lowest[at] ?? value);
        one.high = Math.max(one.high, data.highest[at] ?? value);
        found.set(figure, one);
      });
    }
    for (const one of found.values()) one.median = median(one.values);
    return found;
  };

  // -- the table --------------------------------------------------------------------------------

  const percent = (share) => `${share > 0 ? "+" : share < 0 ? "\u2212" : ""}` +
    `${Math.abs(share * 100).toFixed(1)}\u202f%`;

  // A median; of several sessions, also what it rests on.
  function cell({ median: middle, count, low, high }, unit, several) {
    const rests = count > 1 ? `${count} sessions, ${number(low)} to ${number(high)}` : "1 session";
    return made("td", { className: "num" }, `${number(middle)} ${unit}`,
      ...(several ? [made("br"), made("span", { className: "muted" }, rests)] : []));
  }

  function row([figure, before, after], several) {
    const [check, name, place, anchor, unit, better] = figures[figure];
    const [system, title, path] = checks[check];
    const where = `${title} · ${systems[system][0]} · ${places[place]}`;
    const share = after.median / before.median - 1;
    const side = !better || Math.abs(share) < 0.0005 ? "" : share * better > 0 ? "better" : "worse";
    return made("tr", {},
      made("th", { scope: "row" }, made("a", { href: `${path}#${anchor}` }, name)),
      made("td", { className: "muted" }, where),
      cell(before, units[unit], several[0]), cell(after, units[unit], several[1]),
      made("td", { className: "num" }, percent(share)), made("td", {}, side));
  }

  // Several: whether each side has more than one session.
  function table(rows, several) {
    const heads = [["Figure", ""], ["Where", ""], ["A", "num"], ["B", "num"],
      ["B against A", "num"], ["Side", ""]];
    const place = made("div", { className: "scroll", tabIndex: 0 }, made("table", {},
      made("caption", {}, made("span", { className: "hidden" }, "Medians of both sides")),
      made("thead", {}, made("tr", {},
        ...heads.map(([name, className]) => made("th", { className, scope: "col" }, name)))),
      made("tbody", {}, ...rows.map((one) => row(one, several)))));
    place.setAttribute("role", "region");
    place.setAttribute("aria-label", "Figures of both sides");
    return place;
  }

  const days = (side) => [side.sessions[0], side.sessions.at(-1)].map(day).sort();
  const meet = ([from, until], [first, last]) => from <= last && first <= until;
  // A side as `plumbline compare` takes it; fine: its days have sessions of the other side.
  const named = (side, fine) => {
    const all = side.sessions.length === side.count;
    if (all && (fine || side.count <= FEW)) return side.sessions.join(",");
    return (fine ? side.span : days(side)).join("..");
  };

  // Says which sides are one session.
  function warn(named) {
    const ones = named.filter(([, side]) => side.count === 1).map(([name]) => name);
    single.hidden = !ones.length;
    single.dataset.sides = ones.join(" ");
    single.textContent = `${ones.join(" and ")} ` +
      `${ones.length > 1 ? "are one session each" : "is one session"}: ` +
      "a difference may be that of a single session.";
  }

  let turns = 0;

  async function show() {
    const [one, other] = [a, b].map((select) =>
      sides[kind.value].find((side) => side.id === select.value));
    document.getElementById("table").replaceChildren();
    command.hidden = !(one && other) || one === other;
    single.hidden = true;
    if (command.hidden) {
      state.textContent = one ? "Choose two different sides." : "There is nothing to choose.";
      return;
    }
    address.set("side", "kind", kind.value);
    address.set("side", "a", one.id);
    address.set("side", "b", other.id);
    const turn = ++turns;
    state.textContent = "Reading both sides.";
    let both;
    try {
      both = await Promise.all([measured(one), measured(other)]);
    } catch (source) {
      state.textContent = `${source} cannot be read. Copy the whole site, or make it again.`;
      return;
    }
    // Other sides may have been chosen meanwhile.
    if (turn !== turns) return;
    const [before, after] = both;
    const far = ([, from, to]) => Math.abs(to.median / from.median - 1);
    const rows = [...before].filter(([figure]) => after.has(figure))
      .map(([figure, found]) => [figure, found, after.get(figure)])
      .sort((first, second) => far(second) - far(first));
    const alone = [before, after].map((side) => side.size - rows.length);
    const few = [one, other].some((side) => side.count < LEAST);
    state.textContent = `${rows.length} figures on both sides` +
      `${rows.length > MOST ? `, of which the ${MOST} that differ most are listed` : ""}; ` +
      `${alone[0]} only in A, ${alone[1]} only in B.` +
      `${few ? ` A comparison with confidence needs ${LEAST} sessions a side.` : ""}`;
    const system = one.system === other.system ? ` --system=${one.system}` : "";
    const fine = meet(days(one), days(other));
    // No span of builds that were used in turns is of one of them alone.
    command.hidden = few || Boolean(one.span) && meet(one.span, other.span);
    command.querySelector("code").textContent =
      `plumbline compare${system} ${named(one, fine)} ${named(other, fine)}`;
    warn([["A", one], ["B", other]]);
    if (!rows.length) return;
    const several = [one, other].map((side) => side.count > 1);
    document.getElementById("table").append(table(rows.slice(0, MOST), several));
    window.tables.enhance(document.getElementById("table"));
  }

  // -- choosing -----------------------------------------------------------------------------------

  function fill(chosen) {
    const listed = sides[kind.value];
    [a, b].forEach((select, which) => {
      const groups = [...grouped(listed, (side) => side.system)].map(([label, of]) =>
        made("optgroup", { label }, ...of.map((side) => new Option(side.text, side.id))));
      select.replaceChildren(...groups);
      // By default the last two of the first system.
      const first = listed.filter((side) => side.system === listed[0].system);
      const known = listed.some((side) => side.id === chosen[which]);
      select.value = known ? chosen[which] : (first[1 - which] ?? first[0])?.id;
    });
  }

  const given = ["kind", "a", "b"].map((name) => address.get("side", name));
  kind.value = given[0] in sides ? given[0] : "night";
  if (!sides[kind.value].length) kind.value = "session";
  fill(given.slice(1));
  kind.addEventListener("change", () => {
    fill([]);
    show();
  });
  [a, b].forEach((select) => select.addEventListener("change", show));
  document.getElementById("swap").addEventListener("click", () => {
    [a.value, b.value] = [b.value, a.value];
    show();
  });
  document.getElementById("choice").hidden = false;
  show();
})();
