// The report's page: filters, lists that are drawn as they are read, the panel of a vector, and keys.
// The address holds the whole state, so that every state can be linked. All texts become text nodes, never markup.
"use strict";
(() => {
const NAMES = ["q", "impl", "harm", "family", "role", "show", "cause", "tab", "v"];
const EMPTY = Object.fromEntries(NAMES.map(name => [name, ""]));
const ROWS_AT_ONCE = 60;
const TEXT_WAIT_MS = 120;
const JSON_WIDTH = 72;
const JSON_SHOWN = 6000;
const PASS = ".", UNSUPPORTED = "u", UNASKED = "-", OTHER = "?", WITHHELD = "W";

const $ = id => document.getElementById(id);

/** An element with attributes and children; a child is a node or a text. */
function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== undefined && value !== "") made.setAttribute(name, value);
  }
  made.append(...children.flat(9).filter(Boolean));
  return made;
}

const counted = (number, one) => `${number.toLocaleString("en")} ${one}${number === 1 ? "" : "s"}`;
const sentence = text => text && text[0].toUpperCase() + text.slice(1) + (/[.!?…]$/.test(text) ? "" : ".");

// ------------------------------------------------------------------------------------------------------------- packs

const packs = new Map();
const arriving = new Map();
// The files of a site call this.
globalThis.kfuzzPack = (name, text) => arriving.get(name)(text);

function pack(name) {
  if (!packs.has(name)) packs.set(name, packedText(name).then(unpacked));
  return packs.get(name);
}

function packedText(name) {
  const here = $(`pack-${name}`);
  if (here) return Promise.resolve(here.textContent);
  return new Promise((resolve, reject) => {
    arriving.set(name, resolve);
    const lost = () => reject(new Error(`data/${name}.js cannot be loaded; copy the whole folder of this site`));
    document.head.append(Object.assign(document.createElement("script"), { src: `data/${name}.js`, onerror: lost }));
  });
}

async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), character => character.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}

// ------------------------------------------------------------------------------------------------------------- state

let state = { ...EMPTY };

const encoded = text => encodeURIComponent(text).replace(/%2F/g, "/").replace(/%40/g, "@").replace(/%3A/g, ":");

function decoded(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

function stateOf(hash) {
  const found = { ...EMPTY };
  const text = hash.replace(/^#/, "");
  // An id alone opens its vector.
  if (text && !text.includes("=")) found.v = decoded(text);
  else for (const item of text.split("&")) {
    const [name, value] = [item.slice(0, item.indexOf("=")), item.slice(item.indexOf("=") + 1)];
    if (name in EMPTY) found[name] = decoded(value);
  }
  return found;
}

const address = changes => {
  const all = { ...state, ...changes };
  return "#" + NAMES.filter(name => all[name]).map(name => `${name}=${encoded(all[name])}`).join("&");
};

function go(changes, { replace = false } = {}) {
  // "inside": there is a state of this page to go back to.
  const inside = !replace || Boolean(history.state && history.state.inside);
  history[replace ? "replaceState" : "pushState"]({ inside }, "", address(changes));
  draw();
}

// -------------------------------------------------------------------------------------------------------------- data

let core = null;
const cases = [];
const byName = new Map();
const causes = new Map();
let order = [];
let ranks = {};
let titles = {};
let letterOf = {};
let unexpected = [];

function prepare(data) {
  core = data;
  ranks = Object.fromEntries(data.harms.map(([, letter], i) => [letter, i]));
  titles = Object.fromEntries(data.harms.map(([, letter, title]) => [letter, title]));
  letterOf = Object.fromEntries(data.harms.map(([name, letter]) => [name, letter]));
  unexpected = data.unexpected.map(numbers => new Set(numbers));
  data.cases.forEach(([number, role, finding], i) => {
    const [theme, last, summary, names, recommended] = data.vectors[number];
    const id = `${data.themes[theme]}/${last}`;
    const letters = data.letters[i];
    const wrong = [...letters].filter(letter => letter in ranks);
    const one = {
      i, number, theme, role, finding, id, summary, recommended, letters, last,
      name: role === "consumer" ? id : `${id}:${role}`,
      text: `${id} ${role} ${summary} ${names} ${finding}`.toLowerCase(),
      worst: Math.min(99, ...wrong.map(letter => ranks[letter])),
      wrong: wrong.length,
      differs: new Set([...letters].filter(letter => letter !== UNSUPPORTED && letter !== UNASKED)).size > 1,
      alike: `${theme} ${role} ${letters}`,
    };
    cases.push(one);
    byName.set(one.name, one);
    if (!byName.has(id)) byName.set(id, one);
  });
  data.causes.forEach(([id, shown, letter]) => {
    const own = new Map(shown.map(([implementation, numbers]) => [implementation, new Set(numbers)]));
    const all = new Set(shown.flatMap(([, numbers]) => numbers));
    causes.set(id, { id, own, letter, numbers: [...all], cases: all, row: $(`cause-${id}`) });
  });
  for (const cause of causes.values()) cause.text = cause.row.textContent.toLowerCase();
  // Failures first: the worst class, then the most implementations. Questions that were answered alike stand together.
  order = [...cases].sort((a, b) => a.worst - b.worst || b.wrong - a.wrong
    || (a.letters < b.letters ? -1 : a.letters > b.letters ? 1 : 0) || a.theme - b.theme
    || (a.role < b.role ? -1 : a.role > b.role ? 1 : 0) || a.i - b.i);
}

/** A test for the search's words: all of them must be in the text. */
function searching() {
  const words = state.q.toLowerCase().split(/\s+/).filter(Boolean);
  return text => words.every(word => text.includes(word));
}

const inFamily = (theme, family) => !family || familyOf(theme) === family || core.themes[theme] === family;

function familyOf(theme) {
  return core.families.find(([, themes]) => themes.includes(theme))[0];
}

/** Whether an implementation's answer passes the filters of implementation, harm and what to show. */
function answerTest() {
  const only = core.implementations.findIndex(([label]) => label === state.impl);
  const letter = letterOf[state.harm];
  return (one, i) => (only < 0 || i === only)
    && (!state.harm || one.letters[i] === letter)
    && (state.show !== "wrong" || one.letters[i] in ranks)
    && (state.show !== "new" || unexpected[i].has(one.i));
}

/** The questions that pass the filters besides those of `answerTest` and the family. */
function chosenCases() {
  const found = searching();
  const cause = state.cause ? causes.get(state.cause) : null;
  return one => (!state.role || one.role === state.role) && (!state.cause || Boolean(cause && cause.cases.has(one.i)))
    && (state.show !== "differ" || one.differs) && found(one.text);
}

// ------------------------------------------------------------------------------------------------------------ matrix

function drawMatrix(chosen) {
  const opened = core.families.find(([name, themes]) => name === state.family || themes.some(one => core.themes[one] === state.family));
  const inside = opened && opened[1].length > 1;
  const columns = inside ? opened[1].map(theme => [core.themes[theme], [theme]]) : core.families;
  const column = new Map(columns.flatMap(([, themes], i) => themes.map(theme => [theme, i])));
  const letter = letterOf[state.harm];
  const counts = core.implementations.map(() => columns.map(() => ({})));
  for (const one of cases) {
    const place = column.get(one.theme);
    if (place === undefined || !chosen(one)) continue;
    for (let i = 0; i < counts.length; i++) {
      const given = one.letters[i];
      if (given in ranks && (state.harm && given !== letter || state.show === "new" && !unexpected[i].has(one.i))) continue;
      counts[i][place][given] = (counts[i][place][given] || 0) + 1;
    }
  }
  // A long name may break after a slash.
  const short = name => (inside ? name.slice(opened[0].length + 1) : name).split(/(?<=\/)/).flatMap((piece, i) => [i ? el("wbr") : "", piece]);
  const table = $("matrix").querySelector("table");
  table.className = columns.length > 10 ? "many" : "";
  table.tHead.replaceChildren(el("tr", {}, el("th", { scope: "col" }, "implementation"), el("th", { scope: "col" }, "causes"),
    columns.map(([name]) => el("th", { scope: "col" },
      el("a", { href: address({ family: state.family === name ? "" : name, v: "" }), "aria-current": state.family === name && "true" }, short(name))))));
  table.tBodies[0].replaceChildren(...core.implementations.flatMap(([label, , heading], i) => {
    const [name, version] = [label.split("@")[0], label.split("@").slice(1).join("@")];
    const number = [...causes.values()].filter(cause => cause.own.has(i)).length;
    const row = el("tr", { class: state.impl === label && "chosen" },
      el("th", { scope: "row" }, el("a", { href: address({ impl: state.impl === label ? "" : label, v: "" }), "aria-current": state.impl === label && "true" },
        `${name} `, el("small", {}, version))),
      el("td", { class: "n" }, number ? String(number) : ""));
    row.append(...columns.map(([family], j) => square(label, family, counts[i][j])));
    return heading ? [el("tr", { class: "kind" }, el("th", { scope: "colgroup", colspan: columns.length + 2 }, heading)), row] : [row];
  }));
  $("matrix-about").replaceChildren(...(opened && state.family
    ? [el("a", { href: address({ family: "", v: "" }) }, "all families"), ` › ${opened[0]}`]
    : ["worst class of harm and its number of answers, of all wrong answers"]));
}

function square(label, family, counts) {
  const letters = [...Object.keys(ranks), OTHER, PASS];
  const worst = letters.sort((a, b) => rankOf(a) - rankOf(b)).find(letter => counts[letter]) || UNSUPPORTED;
  const wrong = Object.keys(ranks).reduce((sum, letter) => sum + (counts[letter] || 0), 0);
  const words = Object.keys(ranks).filter(letter => counts[letter]).sort((a, b) => ranks[a] - ranks[b])
    .map(letter => `${counts[letter]} ${titles[letter]}`)
    .concat(Object.entries(core.others).filter(([letter]) => counts[letter]).map(([letter, word]) => `${counts[letter]} ${word}`));
  const title = `${label}, ${family}: ${words.join(", ") || "no question"}`;
  const href = address({ impl: label, family, v: "" });
  if (wrong) {
    return el("td", { class: `h-${worst}` }, el("a", { href, title }, el("b", {}, worst), ` ${counts[worst]}`,
      wrong === counts[worst] ? "" : [" ", el("small", {}, `of ${wrong}`)]));
  }
  // Other harm is filtered out, so a sign for "right" would be wrong.
  if (state.harm || state.show === "new") {
    return el("td", { class: "h-none", title }, el("span", { "aria-hidden": "true" }, "·"), el("span", { class: "sr" }, "none of these"));
  }
  if (worst === UNSUPPORTED) {
    return el("td", { class: "h-none", title }, el("span", { "aria-hidden": "true" }, "–"), el("span", { class: "sr" }, words.length ? "not supported" : "no question"));
  }
  return el("td", { class: "h-ok" }, el("a", { href, title }, el("span", { "aria-hidden": "true" }, "✓"),
    el("span", { class: "sr" }, "all right:"), " ", el("small", {}, String(counts[PASS] || 0))));
}

const rankOf = letter => letter in ranks ? ranks[letter] : letter === OTHER ? 50 : 60;

// ------------------------------------------------------------------------------------------------------------- lists

function drawCauses(chosen) {
  const found = searching();
  const wanted = one => inFamily(one.theme, state.family) && chosen(one);
  const ids = state.q ? new Set() : null;
  let shown = 0;
  for (const cause of causes.values()) {
    const fits = (!state.impl || [...cause.own.keys()].some(i => core.implementations[i][0] === state.impl))
      && (!state.harm || cause.letter === letterOf[state.harm])
      && (!state.cause || cause.id === state.cause)
      && (state.show !== "new" || [...cause.own].some(([i, own]) => [...own].some(number => unexpected[i].has(number))))
      && (ids && found(cause.text) && cause.numbers.some(i => inFamily(cases[i].theme, state.family) && (!state.role || cases[i].role === state.role))
        || cause.numbers.some(i => wanted(cases[i])));
    cause.row.hidden = !fits;
    shown += fits;
  }
  for (const group of document.querySelectorAll("#causes .group")) {
    const [some, all] = ["li:not([hidden])", "li"].map(rows => group.querySelectorAll(rows).length);
    group.hidden = !some;
    group.querySelector("small").textContent = some === all ? counted(all, "cause") : `${some} of ${counted(all, "cause")}`;
  }
  return shown;
}

let waitingRows = [];

function drawQuestions(chosen) {
  const fits = answerTest();
  const some = state.impl || state.harm || state.show === "wrong" || state.show === "new";
  const all = core.implementations.map((_, i) => i);
  const found = order.filter(one => inFamily(one.theme, state.family) && chosen(one) && (!some || all.some(i => fits(one, i))));
  // With an implementation chosen, its own failures come first.
  const only = core.implementations.findIndex(([label]) => label === state.impl);
  if (only >= 0) found.sort((a, b) => rankOf(a.letters[only]) - rankOf(b.letters[only]));
  waitingRows = [];
  for (const one of found) {
    const last = waitingRows[waitingRows.length - 1];
    if (last && last[0].alike === one.alike) last.push(one);
    else waitingRows.push([one]);
  }
  listed = found;
  $("questions").querySelector("ol").replaceChildren();
  if (state.tab === "questions") drawMoreQuestions();
  return found.length;
}

let listed = [];
const end = el("li", { class: "more", "aria-hidden": "true" }, "…");
const watcher = new IntersectionObserver(seen => seen.some(one => one.isIntersecting) && drawMoreQuestions(), { rootMargin: "600px" });

function drawMoreQuestions() {
  const list = $("questions").querySelector("ol");
  end.remove();
  watcher.unobserve(end);
  for (const group of waitingRows.splice(0, ROWS_AT_ONCE)) {
    list.append(questionRow(group[0]));
    if (group.length > 1) list.append(moreAlike(group));
  }
  if (waitingRows.length) {
    list.append(end);
    watcher.observe(end);
  }
}

function questionRow(one) {
  return el("li", { class: "question" }, el("a", { class: "row", href: address({ v: one.name }) },
    el("span", { class: "id" }, `${core.themes[one.theme]}/`, el("b", {}, one.last), " ",
      one.role !== "consumer" && el("i", {}, one.role), one.recommended ? [" ", el("i", {}, "recommended")] : ""),
    el("span", { class: "what" }, sentence(one.summary)),
    el("span", { class: "gave" }, gave(one))));
}

function moreAlike(group) {
  const button = el("button", { type: "button" }, `${counted(group.length - 1, "more question")} of ${core.themes[group[0].theme]} answered alike`);
  const row = el("li", { class: "alike" }, button);
  button.addEventListener("click", () => {
    const rows = group.slice(1).map(questionRow);
    row.replaceWith(...rows);
    rows[0].querySelector(".row").focus();
  });
  return row;
}

/** Who answered how, worst first: names for wrong answers, a number for the others. */
function gave(one) {
  const groups = new Map();
  [...one.letters].forEach((letter, i) => groups.set(letter, [...(groups.get(letter) || []), i]));
  const shown = [];
  for (const letter of Object.keys(ranks).filter(letter => groups.has(letter)).sort((a, b) => ranks[a] - ranks[b])) {
    const names = groups.get(letter).map(i => core.implementations[i][0].split("@")[0]);
    shown.push(el("span", {}, mark(letter), " ", [...new Set(names)].join(", ")));
  }
  if (groups.has(PASS)) shown.push(el("span", { class: "soft" }, `✓ ${groups.get(PASS).length} right`));
  return shown.flatMap(span => [span, " "]);
}

function mark(letter) {
  const title = titles[letter] || core.others[letter] || "";
  const sign = { [PASS]: "✓", [UNSUPPORTED]: "–", [UNASKED]: "–" }[letter] || letter;
  return el("b", { class: `m m-${letter in ranks ? letter : "none"}`, title }, sign);
}

// ------------------------------------------------------------------------------------------------------------- panel

let panelShows = "";
let openedInside = false;

async function drawPanel() {
  const panel = $("panel");
  if (!state.v) {
    panelShows = "";
    if (panel.open) panel.close();
    return;
  }
  const name = state.v;
  if (panelShows === name && panel.open) return;
  panelShows = name;
  const one = byName.get(name);
  if (!one) {
    fillPanel([bar("Not in this result"), el("p", {}, `The result has no question ${name}. Another suite, or an older one, may have it.`)]);
    return;
  }
  try {
    const [theme, words] = await Promise.all([pack(`theme-${one.theme}`), pack("words")]);
    if (panelShows === name) fillPanel(vectorPanel(one, theme, words));
  } catch (error) {
    if (panelShows === name) fillPanel([bar(one.id), el("p", { role: "alert" }, sentence(error.message))]);
  }
}

function fillPanel(children) {
  const panel = $("panel");
  panel.replaceChildren(...children);
  if (!panel.open) panel.showModal();
  panel.scrollTop = 0;
  const trap = panel.querySelector(".trap");
  // In long bytes the trap is below; show it, with the bytes before it.
  if (trap) trap.parentElement.scrollTop = trap.offsetTop - trap.parentElement.clientHeight / 2;
  panel.querySelector("h2").focus();
}

function bar(title, one) {
  const close = el("button", { type: "button", class: "close" }, "Close ", el("kbd", {}, "Esc"));
  close.addEventListener("click", closePanel);
  const steps = one ? [-1, 1].map(step => {
    const there = neighbour(one, step);
    const button = el("button", { type: "button", disabled: !there, title: there ? there.name : "" }, step < 0 ? "‹ Previous" : "Next ›");
    button.addEventListener("click", () => moveTo(one, step));
    return button;
  }) : [];
  return el("div", { class: "bar" }, el("h2", { id: "panel-title", tabindex: "-1" }, title), el("span", { class: "steps" }, steps, close));
}

function neighbour(one, step) {
  const at = listed.indexOf(one);
  return at < 0 ? undefined : listed[at + step];
}

function moveTo(one, step) {
  const there = neighbour(one, step);
  if (there) go({ v: there.name }, { replace: true });
}

function closePanel() {
  // Go back to the list that was shown before; a link from outside has none.
  if (openedInside) history.back();
  else go({ v: "" });
}

function vectorPanel(one, theme, words) {
  const asked = theme.cases[one.i];
  const bytes = theme.vectors[one.number];
  const title = [el("span", { class: "soft" }, `${core.themes[one.theme]}/`), one.last];
  const roles = cases.filter(other => other.number === one.number);
  return [
    bar(title, one),
    el("p", { class: "summary" }, sentence(one.summary),
      one.recommended ? el("i", {}, "recommended, not required") : ""),
    roles.length > 1 ? el("nav", { class: "roles", "aria-label": "The same vector in other roles" }, roles.map(other =>
      el("a", { href: address({ v: other.name }), "aria-current": other === one && "true" },
        mark(Object.keys(ranks).find(letter => ranks[letter] === other.worst) || PASS), ` ${other.role}`))) : "",
    el("div", { class: "columns" },
      el("div", {}, expectedPart(one, asked), answersPart(one, theme)),
      el("div", {}, bytesPart(one, bytes), flagsPart(one, words), requirementsPart(one, words))),
  ].filter(Boolean);
}

function part(kind, title, ...children) {
  return el("section", { class: kind }, el("h3", {}, title), children);
}

function expectedPart(one, asked) {
  return part("expected", `Expected as ${one.role}`,
    el("p", {}, el("strong", {}, sentence(asked.verdict)), one.finding ? [" Finding ", el("code", {}, one.finding), asked.meaning ? `: ${sentence(asked.meaning)}` : "."] : ""),
    asked.settings ? el("p", { class: "soft" }, asked.settings) : "",
    asked.budget ? el("p", { class: "soft" }, asked.budget) : "",
    asked.partial ? el("p", { class: "soft" }, "The last batch is incomplete, which is no error.") : "",
    asked.kafka ? el("ul", { class: "plain" }, asked.kafka.map(line => el("li", {}, line))) : "",
    asked.contents ? asked.contents.map((contents, i) => json(i ? "Another permitted reading" : "The contents", contents, i === 0)) : "",
    asked.long ? el("p", { class: "soft" }, "The contents are too long for this page.") : "");
}

function json(title, value, open) {
  const text = flowed(value, 0);
  const shown = text.length > JSON_SHOWN ? `${text.slice(0, JSON_SHOWN)}\n…` : text;
  return el("details", { open: open && shown.length < 700 }, el("summary", {}, title), el("pre", { tabindex: "0" }, shown));
}

/** JSON for people: short items share a line. */
function flowed(value, indent) {
  const line = JSON.stringify(value);
  if (line.length + indent <= JSON_WIDTH || value === null || typeof value !== "object") return line;
  const isArray = Array.isArray(value);
  const items = isArray ? value.map(item => flowed(item, indent + 2))
    : Object.entries(value).map(([name, item]) => `${JSON.stringify(name)}: ${flowed(item, indent + 2)}`);
  const lines = [""];
  for (const item of items) {
    const last = lines[lines.length - 1];
    // An item of several lines begins on a new line.
    const full = last.length + item.length + indent + 4 > JSON_WIDTH || item.includes("\n") || last.includes("\n");
    if (full && last) lines.push("");
    lines[lines.length - 1] += lines[lines.length - 1] ? ` ${item},` : `${item},`;
  }
  const pad = " ".repeat(indent + 2);
  return `${isArray ? "[" : "{"}\n${pad}${lines.join(`\n${pad}`).slice(0, -1)}\n${" ".repeat(indent)}${isArray ? "]" : "}"}`;
}

function answersPart(one, theme) {
  const groups = new Map();
  theme.cases[one.i].answers.forEach((answer, i) => groups.set(answer, [...(groups.get(answer) || []), i]));
  const sorted = [...groups].sort((a, b) => rankOf(one.letters[a[1][0]]) - rankOf(one.letters[b[1][0]]) || a[1][0] - b[1][0]);
  const silent = [];
  const rows = [];
  for (const [answer, numbers] of sorted) {
    const letter = one.letters[numbers[0]];
    if (letter === UNSUPPORTED && theme.answers[answer][1] === "ok" || letter === UNASKED) {
      silent.push(...numbers.map(i => [i, theme.answers[answer][2]]));
    } else rows.push(answerRow(one, letter, theme.answers[answer], numbers));
  }
  return part("answered", "Answers", el("ul", { class: "answers" }, rows), silent.length
    ? el("details", {}, el("summary", {}, `– ${counted(silent.length, "implementation")} not asked, or without support`),
      el("ul", { class: "plain" }, silent.sort((a, b) => a[0] - b[0]).map(([i, why]) => el("li", {}, core.implementations[i][0], why ? `: ${why}` : "")))) : "");
}

function answerRow(one, letter, [outcome, standing, text, reason, answer], numbers) {
  const own = [...causes.values()].filter(cause => cause.letter && numbers.some(i => cause.own.get(i)?.has(one.i)));
  const what = letter === WITHHELD ? "withheld: not public yet" : letter === PASS ? "right" : titles[letter] ? `${titles[letter]} (${outcome})` : outcome;
  return el("li", {},
    el("p", {}, mark(letter), " ", el(letter === PASS ? "span" : "strong", {}, numbers.map(i => core.implementations[i][0]).join(", ")), ` ${what}`),
    text ? el("p", { class: "said" }, text) : "",
    reason ? el("p", { class: "soft" }, standing === "unexpected" ? "Not as expected: " : "Known: ", linked(reason)) : "",
    standing === "unexpected" && !reason ? el("p", { class: "soft" }, "Not as expected.") : "",
    standing === "miss" ? el("p", { class: "soft" }, "A missed recommendation.") : "",
    own.length ? el("p", { class: "soft" }, own.map((cause, i) => [i ? ", " : "",
      el("a", { href: address({ ...EMPTY, cause: cause.id, tab: "questions" }) }, `${counted(cause.numbers.length, "question")} with this cause`)])) : "",
    answer ? json("The answer", answer, false) : "");
}

/** The text with links to the threads that it names. */
function linked(text) {
  return text.split(/(https:\/\/[^\s)>]+|KAFKA-\d+)/).map((piece, i) => {
    if (i % 2 === 0) return piece;
    return outward(piece.startsWith("https") ? piece : `https://issues.apache.org/jira/browse/${piece}`, piece);
  });
}

const outward = (href, text) => el("a", { href, rel: "noreferrer" }, text);

function bytesPart(one, bytes) {
  if (bytes.recipe) {
    return part("bytes", "Bytes", el("p", {}, `${counted(bytes.size, "byte")}, too many for a page. The recipe `, el("code", {}, bytes.recipe), " makes them:"),
      el("pre", { tabindex: "0" }, `kfuzz show ${one.id}`), el("p", { class: "soft wrap" }, `SHA-256 ${bytes.sha256}`));
  }
  const copy = bytes.hex ? el("button", { type: "button" }, "Copy hex") : "";
  if (copy) copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(bytes.hex);
      copy.textContent = "Copied";
    } catch {
      copy.replaceWith(el("pre", { class: "wrap", tabindex: "0" }, bytes.hex));
    }
  });
  return part("bytes", "Bytes", el("p", {}, counted(bytes.size, "byte"), ["encode", "produce"].includes(one.role) ? ", which hold the contents " : " ", copy),
    el("ol", { class: "parts", tabindex: "0", "aria-label": "The bytes, part by part" }, bytes.parts.map(partRow)),
    bytes.more ? el("p", { class: "soft" }, `… and ${counted(bytes.more, "part")} more:`) : "",
    el("pre", { tabindex: "0" }, `kfuzz show ${one.id}`));
}

function partRow([depth, name, at, size = 0, value = "", hex = "", marks = ""]) {
  const octets = hex.replace(/../g, "$& ").trim();
  const trap = marks.startsWith("trap");
  return el("li", { class: [`d${Math.min(depth, 7)}`, trap && "trap", !hex && "heading"].filter(Boolean).join(" ") },
    el("span", { class: "at" }, at.toString(16).padStart(4, "0")),
    el("span", { class: "hex" }, octets, hex && hex.length / 2 < size ? " …" : ""),
    el("span", { class: "field" }, name, value ? [": ", el("span", { class: "value" }, value)] : ""),
    marks ? el("strong", { class: "marks" }, `◀ ${marks}`) : "");
}

function flagsPart(one, words) {
  const names = core.vectors[one.number][3].split(" ").filter(name => words.flags[name]);
  if (!names.length) return "";
  return part("more-about", "What goes wrong in the field", names.map(name => {
    const [type, description, effect, links] = words.flags[name];
    return el("div", { class: "flag" },
      el("p", {}, el("a", { href: address({ ...EMPTY, q: name, tab: "questions" }) }, name), ` (${type}): `, sentence(description)), el("p", {}, sentence(effect)),
      links.length ? el("p", { class: "soft" }, "Public: ", links.flatMap(([text, href], i) => [i ? ", " : "", href ? outward(href, text) : text])) : "");
  }));
}

function requirementsPart(one, words) {
  const names = core.vectors[one.number][3].split(" ").filter(name => words.requirements[name]);
  if (!names.length) return "";
  return part("more-about", "Requirements", names.map(name => {
    const [level, text, sources] = words.requirements[name];
    return el("div", { class: "flag" },
      el("p", {}, el("a", { href: address({ ...EMPTY, q: name, tab: "questions" }) }, name), ` (${level}): `, sentence(text)),
      el("p", { class: "soft" }, sources.join("; ")));
  }));
}

// -------------------------------------------------------------------------------------------------------------- draw

let drawnLists = "";

function draw() {
  state = stateOf(location.hash);
  openedInside = Boolean(history.state && history.state.inside && state.v);
  for (const name of ["q", "impl", "harm", "family", "role", "show"]) {
    if (document.activeElement !== $(name) || name !== "q") $(name).value = state[name];
  }
  if (!core) return;
  const lists = address({ v: "" });
  if (lists !== drawnLists) {
    drawnLists = lists;
    const chosen = chosenCases();
    drawMatrix(chosen);
    const tab = state.tab === "questions" ? "questions" : "causes";
    const shown = { causes: drawCauses(chosen), questions: drawQuestions(chosen) };
    const totals = { causes: causes.size, questions: cases.length };
    for (const name of ["causes", "questions"]) {
      $(name).hidden = name !== tab;
      const link = $(`tab-${name}`);
      link.href = address({ tab: name === "causes" ? "" : name, v: "" });
      link.toggleAttribute("aria-current", name === tab);
      if (name === tab) link.setAttribute("aria-current", "page");
      link.querySelector("small").textContent = shown[name] === totals[name] ? totals[name].toLocaleString("en")
        : `${shown[name].toLocaleString("en")} of ${totals[name].toLocaleString("en")}`;
    }
    $("empty").hidden = shown[tab] > 0;
    $("clear").hidden = !NAMES.some(name => name !== "tab" && name !== "v" && state[name]);
    const cause = causes.get(state.cause);
    $("told").textContent = $("clear").hidden ? "" : `${counted(shown[tab], tab.slice(0, -1))} `
      + (cause && tab === "questions" ? `with one cause of ${[...cause.own.keys()].map(i => core.implementations[i][0]).join(", ")}` : "shown");
    for (const link of document.querySelectorAll(".harms a")) {
      const own = link.dataset.harm;
      link.href = address({ harm: state.harm === own ? "" : own, v: "" });
      if (state.harm === own) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  }
  drawPanel();
}

const cleared = () => ({ ...EMPTY, tab: state.tab });

// ------------------------------------------------------------------------------------------------------ keys, clicks

function move(step) {
  const list = state.tab === "questions" ? $("questions") : $("causes");
  const rows = () => [...list.querySelectorAll("li:not([hidden]) > .row, .alike > button")];
  let all = rows();
  let at = all.indexOf(document.activeElement) + step;
  if (step > 0 && at === 0 && !all.includes(document.activeElement)) at = 0;
  if (at >= all.length && waitingRows.length && state.tab === "questions") {
    drawMoreQuestions();
    all = rows();
  }
  const row = all[Math.max(0, at)];
  if (row) {
    row.focus({ preventScroll: true });
    row.scrollIntoView({ block: "nearest" });
  }
}

function typing() {
  const here = document.activeElement;
  return here && (here.tagName === "INPUT" || here.tagName === "SELECT" || here.tagName === "TEXTAREA");
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape" && !$("panel").open && !$("help").open) {
    if (document.activeElement === $("q") && $("q").value === "") $("q").blur();
    else if (NAMES.some(name => name !== "tab" && state[name])) {
      $("q").value = "";
      go(cleared());
    }
    return;
  }
  if (typing() || $("help").open) return;
  const onRow = document.activeElement && document.activeElement.matches(".row, .alike > button");
  const step = { j: 1, k: -1, ArrowDown: onRow ? 1 : 0, ArrowUp: onRow ? -1 : 0 }[event.key];
  if (step && $("panel").open) {
    const one = byName.get(state.v);
    if (one && !event.key.startsWith("Arrow")) moveTo(one, step);
  } else if (step) {
    event.preventDefault();
    move(step);
  } else if (event.key === "?") $("help").showModal();
  else if (event.key === "t") flipTheme();
  else if ($("panel").open) return;
  else if (event.key === "/") {
    event.preventDefault();
    $("q").focus();
    $("q").select();
  } else if (event.key === "c" || event.key === "q") go({ tab: event.key === "q" ? "questions" : "" });
}

function onClick(event) {
  const link = event.target.closest("a[href^='#']");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  const wanted = stateOf(link.getAttribute("href"));
  // The links of causes stand in the page as it was made; they keep the filters of now.
  const changes = link.closest("#causes") ? { ...state, ...Object.fromEntries(Object.entries(wanted).filter(([, value]) => value)) } : wanted;
  go(changes, { replace: Boolean(link.closest(".roles")) });
  if (link.closest("tbody")) $("lists").scrollIntoView({ block: "start" });
}

function flipTheme() {
  const root = document.documentElement;
  const isDark = getComputedStyle(root).colorScheme === "dark"
    || getComputedStyle(root).colorScheme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches;
  setTheme(isDark ? "light" : "dark");
  // A browser may forbid storage; then the choice lasts as long as the page.
  try { localStorage.setItem("kfuzz-theme", isDark ? "light" : "dark"); } catch { /* as said */ }
}

function setTheme(theme) {
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
}

function listen() {
  addEventListener("hashchange", draw);
  addEventListener("popstate", draw);
  addEventListener("keydown", onKey);
  addEventListener("click", onClick);
  for (const name of ["impl", "harm", "family", "role", "show"]) {
    $(name).addEventListener("change", () => go({ [name]: $(name).value }));
  }
  let timer = 0;
  $("q").addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => go({ q: $("q").value.trim() }, { replace: true }), TEXT_WAIT_MS);
  });
  document.querySelector(".filters").addEventListener("submit", event => event.preventDefault());
  $("clear").addEventListener("click", () => {
    $("q").value = "";
    go(cleared());
  });
  $("theme").addEventListener("click", flipTheme);
  $("help-open").addEventListener("click", () => $("help").showModal());
  $("panel").addEventListener("cancel", event => {
    event.preventDefault();
    closePanel();
  });
  for (const hidden of document.querySelectorAll(".tools, .filters, .tabs")) hidden.hidden = false;
}

try { setTheme(localStorage.getItem("kfuzz-theme")); } catch { /* storage may be forbidden */ }
listen();
pack("core").then(data => {
  prepare(data);
  draw();
  document.documentElement.dataset.ready = "";
}).catch(error => {
  $("empty").hidden = false;
  $("empty").textContent = `This page cannot open its data: ${error.message}. A browser of 2023 or newer is needed.`;
});
})();
