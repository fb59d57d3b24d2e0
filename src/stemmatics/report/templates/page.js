// Sorts, filters, opens and copies what is in the page's data, and draws its figures. Nothing is loaded.
"use strict";
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
  const ROWS_AT_ONCE = 100;
  const ROWS_OF_MAIN = 15;

  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value === true) made.setAttribute(name, "");
      else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
    }
    made.append(...children.filter((child) => child !== null && child !== undefined));
    return made;
  }

  // ---- the page's data, parsed at the first use ----
  let parsed = null;
  function data() {
    if (parsed) return parsed;
    parsed = JSON.parse($("#page-data").textContent);
    parsed.resultList = [];
    for (const group of parsed.results) {
      for (const row of group.rows) {
        const subject = {};
        group.subject.forEach((name, index) => { subject[name] = row[index]; });
        const rest = row.slice(group.subject.length);
        const result = { ...group, subject, rows: undefined };
        if (group.kind === "estimate") [result.value, result.lo, result.hi, result.n, result.smallest_effect] = rest;
        else if (group.kind === "category") [result.value, result.reason, result.n, result.unit] = rest;
        else [result.reason, result.fix] = rest;
        result.id = idOf(group.quantity, subject);
        parsed.resultList.push(result);
      }
    }
    parsed.claimOf = new Map();
    parsed.claims.forEach((claim, index) => parsed.claimOf.set(claimId(claim), index));
    parsed.tableOf = new Map(parsed.tables.map((table) => [table.id, table]));
    return parsed;
  }
  const coded = (value) => value.replaceAll("~", "~0").replaceAll("/", "~1");
  function idOf(quantity, subject) {
    const names = Object.keys(subject).sort((a, b) => (a < b ? -1 : 1));
    return [quantity, ...names.map((name) => `${name}=${coded(subject[name])}`)].join("/");
  }
  function claimId([result, form]) {
    const [field, template, scale] = parsed.forms[form];
    return `${parsed.resultList[result].id}#${field}#${template}#${Number(scale)}`;
  }
  const resultOf = (claim) => data().resultList[data().claims[claim][0]];
  const formOf = (claim) => data().forms[data().claims[claim][1]];
  const textOf = (claim) => data().claims[claim][2];
  function numberOf(claim) {
    const value = resultOf(claim)[formOf(claim)[0]];
    return typeof value === "number" ? value * formOf(claim)[2] : value;
  }
  // a Python format such as {:+.4f} or {:.0f}%
  function formatted(template, value) {
    if (value === null || value === undefined) return "n/a";
    const match = /^(.*)\{(?::([+]?)(,?)(?:\.(\d+))?([fge%d])?)?\}(.*)$/.exec(template);
    if (!match || typeof value !== "number") return String(value);
    const [, before, plus, comma, digits, kind, after] = match;
    let text;
    if (kind === "f") text = value.toFixed(Number(digits ?? 6));
    else if (kind === "e") text = value.toExponential(Number(digits ?? 6)).replace(/e([+-])(\d)$/, "e$10$2");
    else if (kind === "g") text = String(Number(value.toPrecision(Number(digits ?? 6) || 1)));
    else text = String(value);
    if (comma) text = text.replace(/\B(?=(\d{3})+(?!\d))/g, ",");
    if (plus && !text.startsWith("-")) text = `+${text}`;
    return before + text + after;
  }

  // ---- tables ----
  class TableView {
    constructor(host, table, limit = ROWS_AT_ONCE) {
      this.host = host;
      this.table = table;
      this.order = null;
      this.words = "";
      this.filters = new Map();
      this.limit = limit;
      this.status = element("span", { class: "status", role: "status" });
      this.body = element("tbody");
      this.more = element("button", { type: "button", hidden: true });
      this.more.addEventListener("click", () => { this.limit = Infinity; this.draw(); });
      const grid = element("table", {}, this.caption(), this.head(), this.body);
      const region = element("div", { class: "scroll", role: "region", tabindex: "0", "aria-labelledby": table.id }, grid);
      host.replaceChildren(this.toolbar(), region, this.more);
      this.draw();
    }
    caption() {
      const title = document.getElementById(this.table.id);
      if (title?.tagName === "CAPTION") return title;
      return element("caption", { class: "unseen" }, title ? title.textContent : this.table.name);
    }
    toolbar() {
      const bar = element("div", { class: "tools" });
      const search = element("input", { type: "search", placeholder: "search", "aria-label": "Search this table" });
      search.addEventListener("input", () => { this.words = search.value.toLowerCase(); this.draw(); });
      bar.append(search);
      this.table.columns.forEach((column, index) => {
        const values = new Set(this.table.rows.map((row) => this.text(row[index])));
        if (column.number || values.size < 2 || values.size > 15) return;
        const select = element("select", { "aria-label": `Filter by ${column.title}` }, element("option", { value: "" }, `${column.title}: all`));
        for (const value of values) select.append(element("option", { value }, value));
        select.addEventListener("change", () => {
          if (select.value) this.filters.set(index, select.value);
          else this.filters.delete(index);
          this.draw();
        });
        bar.append(select);
      });
      const save = element("button", { type: "button" }, "CSV");
      save.addEventListener("click", () => saveFile(`${this.table.id}.csv`, this.csv()));
      bar.append(save, this.status);
      return bar;
    }
    head() {
      const row = element("tr");
      this.headings = this.table.columns.map((column, index) => {
        const button = element("button", { type: "button", class: "sort" }, column.title);
        const heading = element("th", { scope: "col", class: column.number ? "number" : null, colspan: column.interval ? "2" : null }, button);
        button.addEventListener("click", () => this.sort(index));
        row.append(heading);
        return heading;
      });
      return element("thead", {}, row);
    }
    sort(index) {
      const falling = this.order?.index === index ? !this.order.falling : this.table.columns[index].number;
      this.order = { index, falling };
      this.headings.forEach((heading, other) => {
        if (other === index) heading.setAttribute("aria-sort", falling ? "descending" : "ascending");
        else heading.removeAttribute("aria-sort");
      });
      this.draw();
    }
    value(cell) {
      if (typeof cell === "number") return numberOf(cell);
      if (Array.isArray(cell)) return numberOf(cell[0]);
      if (cell && typeof cell === "object") return cell.count;
      return cell;
    }
    text(cell) {
      if (cell === null) return "n/a";
      if (typeof cell === "number") return textOf(cell);
      if (Array.isArray(cell)) return textOf(cell[0]);
      return typeof cell === "object" ? cell.count.toLocaleString("en-US") : cell;
    }
    rows() {
      const words = this.words.split(/\s+/).filter(Boolean);
      let rows = this.table.rows.filter((row) => {
        for (const [index, value] of this.filters) if (this.text(row[index]) !== value) return false;
        if (!words.length) return true;
        const line = row.map((cell) => this.text(cell)).join(" ").toLowerCase();
        return words.every((word) => line.includes(word));
      });
      if (this.order) {
        const { index, falling } = this.order;
        const keyed = rows.map((row) => [this.value(row[index]), row]);
        keyed.sort(([a], [b]) => compared(a, b, falling));
        rows = keyed.map(([, row]) => row);
      }
      return rows;
    }
    draw() {
      const rows = this.rows();
      const shown = rows.slice(0, this.limit);
      this.body.replaceChildren(...shown.map((row) => this.line(row)));
      this.more.hidden = shown.length === rows.length;
      this.more.textContent = `Show all ${rows.length} rows`;
      const all = this.table.rows.length;
      this.status.textContent = rows.length === all ? `${all} rows` : `${rows.length} of ${all} rows`;
      rove(this.body.closest("table") ?? this.body);
    }
    line(row) {
      const line = element("tr", { "data-row": String(this.table.rows.indexOf(row)) });
      row.forEach((cell, index) => {
        const column = this.table.columns[index];
        const isName = index === 0 && !column.number;
        const holder = element(isName ? "th" : "td", { scope: isName ? "row" : null, class: column.number ? "number" : null });
        holder.append(this.shown(cell));
        if (isName) holder.append(this.anchor(row));
        line.append(holder);
        if (column.interval) {
          const ends = element("td", { class: "number interval" });
          if (Array.isArray(cell)) ends.append("[", printed(cell[1]), ", ", printed(cell[2]), "]");
          line.append(ends);
        }
      });
      return line;
    }
    shown(cell) {
      if (typeof cell === "number") return printed(cell);
      if (Array.isArray(cell)) return printed(cell[0]);
      return element("span", { class: cell === null ? "unknown" : "name" }, this.text(cell));
    }
    key(row) {
      return row.filter((cell) => typeof cell === "string").map(encodeURIComponent).join("/");
    }
    anchor(row) {
      return element("a", { class: "anchor", href: `#${this.table.id}:${this.key(row)}`, "aria-label": "Link to this row" }, "#");
    }
    go(key) {
      const row = this.table.rows.find((each) => this.key(each) === key);
      if (!row) return false;
      this.limit = Infinity;
      this.draw();
      const line = $(`[data-row="${this.table.rows.indexOf(row)}"]`, this.body);
      $$(".target", document).forEach((each) => each.classList.remove("target"));
      line.classList.add("target");
      line.scrollIntoView({ block: "center" });
      return true;
    }
    csv() {
      const quoted = (value) => {
        const text = value === null || value === undefined ? "n/a" : String(value);
        return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
      };
      const header = this.table.columns.flatMap((column) => (column.interval ? [column.title, `${column.title} lo`, `${column.title} hi`] : [column.title]));
      const lines = this.rows().map((row) => row.flatMap((cell, index) => {
        const value = this.value(cell);
        if (!this.table.columns[index].interval) return [value];
        return Array.isArray(cell) ? [value, numberOf(cell[1]), numberOf(cell[2])] : [value, null, null];
      }));
      return [header, ...lines].map((line) => line.map(quoted).join(",")).join("\r\n") + "\r\n";
    }
  }

  // unknown values come last either way; words are compared with their numbers as numbers
  function compared(a, b, falling) {
    const missing = (value) => value === null || value === undefined || Number.isNaN(value);
    if (missing(a) || missing(b)) return missing(a) - missing(b);
    const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
    return falling ? -order : order;
  }

  function printed(claim) {
    const shown = element("span", { "data-c": String(claim) }, textOf(claim));
    if (formOf(claim)[0] === "value") shown.classList.add("value");
    return shown;
  }

  function saveFile(name, text) {
    const url = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    const link = element("a", { href: url, download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }

  const views = new Map();
  function view(id) {
    if (views.has(id)) return views.get(id);
    const table = data().tableOf.get(id);
    const host = $(`[data-table="${CSS.escape(id)}"]`);
    if (!table || !host) return null;
    let place = $(".view", host);
    if (!place) {
      place = element("div", { class: "view" });
      host.prepend(place);
    }
    const made = new TableView(place, table, host.matches(".main-table") ? ROWS_OF_MAIN : ROWS_AT_ONCE);
    // the static rows, whose caption is in the new table now
    $(":scope > .scroll", host)?.remove();
    views.set(id, made);
    return made;
  }
  function allClaims() {
    const rows = data().claims.map((claim, index) => [claimId(claim), index]);
    return { id: "all-claims", name: "claims", columns: [{ title: "claim" }, { title: "as printed", number: true }], rows };
  }
  document.addEventListener("toggle", (event) => {
    const host = event.target;
    if (!host.open || !host.classList.contains("folded")) return;
    if (host.dataset.claims) {
      if (!views.has("all-claims")) views.set("all-claims", new TableView($(".view", host), allClaims()));
    } else view(host.dataset.table);
  }, true);

  // a section's main table can be sorted at once: its static rows are replaced when they come into sight
  const enliven = (host) => view(host.dataset.table);
  const nearby = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      nearby.unobserve(entry.target);
      queue.push(entry.target.matches("figure") ? () => draw(entry.target) : () => enliven(entry.target));
    }
    work();
  }, { rootMargin: "400px" });
  // one piece of work a task, so that the page answers in between
  const queue = [];
  let busy = false;
  async function work() {
    if (busy) return;
    busy = true;
    while (queue.length) {
      await new Promise((resolve) => setTimeout(resolve));
      await queue.shift()();
    }
    busy = false;
  }

  // ---- the first screen ----
  const answers = $("#answers");
  function answerValue(line, index) {
    if (index === 0) return line.dataset.descendant;
    const value = line.cells[index].dataset.value;
    return value === undefined || value === "" ? null : Number(value);
  }
  function sortAnswers(index, heading) {
    const falling = heading.getAttribute("aria-sort") === "descending" ? false : heading.getAttribute("aria-sort") === "ascending" ? true : index > 0;
    $$("th", answers.tHead).forEach((each) => each.removeAttribute("aria-sort"));
    heading.setAttribute("aria-sort", falling ? "descending" : "ascending");
    const lines = [...answers.tBodies[0].rows].map((line) => [answerValue(line, index), line]);
    lines.sort(([a], [b]) => compared(a, b, falling));
    answers.tBodies[0].append(...lines.map(([, line]) => line));
    if (index > 0) colourTree(index);
  }
  function colourTree(index) {
    const heading = answers.tHead.rows[0].cells[index];
    const null_ = Number(heading.dataset.null);
    const lines = [...answers.tBodies[0].rows];
    const size = (line) => Math.abs((answerValue(line, index) ?? null_) - null_);
    const largest = Math.max(...lines.map(size), 1e-12);
    $$("circle[data-node]").forEach((circle) => { circle.removeAttribute("class"); circle.style.fillOpacity = ""; });
    for (const line of lines) {
      const circle = $(`circle[data-node="${CSS.escape(line.dataset.descendant)}"]`);
      if (!circle || answerValue(line, index) === null) continue;
      circle.classList.add(line.cells[index].dataset.direction);
      circle.style.fillOpacity = String(0.25 + 0.75 * (size(line) / largest));
    }
    $("#coloured").hidden = false;
    $("#coloured span").textContent = heading.dataset.title;
  }
  if (answers) {
    [...answers.tHead.rows[0].cells].forEach((heading, index) => {
      const title = [...heading.childNodes].filter((node) => node.nodeType === 3 || !node.classList.contains("caption")).map((node) => node.textContent).join("").trim();
      heading.dataset.title = title;
      const button = element("button", { type: "button", class: "sort" });
      button.append(...heading.childNodes);
      heading.append(button);
      button.addEventListener("click", () => sortAnswers(index, heading));
    });
    const first = [...answers.tHead.rows[0].cells].findIndex((_, index) => index > 0 && [...answers.tBodies[0].rows].some((line) => answerValue(line, index) !== null));
    if (first > 0) colourTree(first);
    rove(answers);
  }

  // ---- cards: what a number is, and copies of it ----
  const card = element("div", { class: "card", role: "dialog", "aria-label": "About this number", hidden: true });
  document.body.append(card);
  let cardFor = null;
  let isPinned = false;
  const claimAt = (node) => (node.dataset.c !== undefined ? Number(node.dataset.c) : data().claimOf.get(node.dataset.claim));
  const named = (result) => Object.entries(result.subject).map(([name, value]) => `${name} ${value}`).join(", ");
  function ends(claim) {
    const result = resultOf(claim);
    const [, template, scale] = formOf(claim);
    if (result.kind !== "estimate" || result.lo === null || result.hi === null || result.method === "exact") return null;
    const pair = [result.lo * scale, result.hi * scale].sort((a, b) => a - b);
    return pair.map((value) => formatted(template, value));
  }
  function valueText(claim) {
    const result = resultOf(claim);
    return result.kind === "estimate" ? formatted(formOf(claim)[1], result.value === null ? null : result.value * formOf(claim)[2]) : String(result.value ?? "n/a");
  }
  // a claim on a field other than the value has a format of its own: the card then shows the value plainly
  const plainClaim = (claim) => !["value", "lo", "hi", "smallest_effect"].includes(formOf(claim)[0]);
  function copies(claim) {
    const result = resultOf(claim);
    const value = plainClaim(claim) ? textOf(claim) : valueText(claim);
    const interval = plainClaim(claim) ? null : ends(claim);
    const units = result.units ? ` ${result.units}` : "";
    const about = result.kind === "estimate" && interval ? ` (${100 * result.level}% interval, ${result.method}, n = ${result.n}, by ${result.unit})` : "";
    const text = `${value}${interval ? ` [${interval.join(", ")}]` : ""}${units}${about}`;
    const latex = (word) => word.replace(/[%#&_$]/g, "\\$&");
    const head = ["quantity", ...Object.keys(result.subject), "value", "lo", "hi", "level", "method", "unit", "n"];
    const line = [result.quantity, ...Object.values(result.subject), result.value, result.lo, result.hi, result.level, result.method, result.unit, result.n];
    const quoted = (each) => (each === null || each === undefined ? "n/a" : /[",\n]/.test(String(each)) ? `"${String(each).replaceAll('"', '""')}"` : String(each));
    return {
      text: `${result.quantity} (${named(result)}): ${text}`,
      Markdown: `**${value}**${interval ? ` [${interval.join(", ")}]` : ""}${units}`,
      LaTeX: `$${latex(value)}${interval ? `\\;[${interval.map(latex).join(",\\,")}]` : ""}$${latex(units)}`,
      CSV: [head, line].map((row) => row.map(quoted).join(",")).join("\n"),
      query: query(result),
    };
  }
  function query(result) {
    const { run, ...subject } = result.subject;
    const name = data().runs[run] ?? "RUN";
    const id = data().runs[run] ? idOf(result.quantity, subject) : result.id;
    return `stemmatics.load_run(${JSON.stringify(name)}).results[${JSON.stringify(id)}]`;
  }
  async function copy(text, button) {
    const before = button.textContent;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = element("textarea");
      area.value = text;
      card.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    button.textContent = "copied";
    setTimeout(() => { button.textContent = before; }, 1200);
  }
  function showCard(node) {
    const claim = claimAt(node);
    if (claim === undefined) return;
    const result = resultOf(claim);
    const list = element("dl");
    const add = (name, value) => { if (value !== null && value !== undefined && value !== "") list.append(element("dt", {}, name), element("dd", {}, String(value))); };
    const interval = ends(claim);
    add(formOf(claim)[0] === "value" ? "value" : formOf(claim)[0].replace("_", " "), `${textOf(claim)}${result.units && !plainClaim(claim) ? ` ${result.units}` : ""}`);
    if (interval && !plainClaim(claim)) {
      if (formOf(claim)[0] !== "value") add("value", valueText(claim));
      add(`${100 * result.level}% interval`, `[${interval.join(", ")}]`);
    }
    if (result.kind === "estimate") {
      add("method", result.method);
      if (result.smallest_effect !== null && result.smallest_effect !== undefined) add("detectable from", formatted("{:.3g}", result.smallest_effect));
    }
    add("n", result.n ? `${result.n}${result.unit ? `, by ${result.unit}` : ""}` : null);
    add("because", result.reason);
    add("note", result.note);
    for (const [name, value] of Object.entries(result.subject)) add(name, value);
    const buttons = element("p", { class: "copies" }, "copy as ");
    const texts = copies(claim);
    for (const [name, text] of Object.entries(texts)) {
      const button = element("button", { type: "button" }, name);
      button.addEventListener("click", () => copy(text, button));
      buttons.append(button);
    }
    card.replaceChildren(element("strong", {}, result.quantity), list, element("code", {}, texts.query), buttons);
    card.hidden = false;
    cardFor = node;
    const box = node.getBoundingClientRect();
    const left = Math.max(8, Math.min(box.left, innerWidth - card.offsetWidth - 8));
    const above = box.bottom + card.offsetHeight + 8 > innerHeight && box.top > card.offsetHeight + 8;
    card.style.left = `${left + scrollX}px`;
    card.style.top = `${(above ? box.top - card.offsetHeight - 2 : box.bottom + 2) + scrollY}px`;
  }
  function hideCard(back = false) {
    if (back && cardFor?.isConnected) cardFor.focus();
    card.hidden = true;
    cardFor = null;
    isPinned = false;
  }
  const numberIn = (target) => target.closest?.("[data-claim], [data-c]");
  let timer = 0;
  document.addEventListener("pointerover", (event) => {
    const node = numberIn(event.target);
    clearTimeout(timer);
    if (isPinned) return;
    if (node) timer = setTimeout(() => showCard(node), 120);
    else if (!card.contains(event.target)) timer = setTimeout(() => hideCard(), 250);
  });
  document.addEventListener("focusin", (event) => {
    const node = numberIn(event.target);
    if (node && node === event.target) { isPinned = false; showCard(node); }
    else if (!card.contains(event.target) && !card.hidden) hideCard();
  });
  document.addEventListener("click", (event) => {
    const node = numberIn(event.target);
    if (node) { showCard(node); isPinned = true; }
    else if (!card.contains(event.target) && !card.hidden) hideCard();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !card.hidden) { hideCard(card.contains(document.activeElement) || isPinned); return; }
    const node = numberIn(event.target);
    if (!node) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      showCard(node);
      isPinned = true;
      $("button", card)?.focus();
    } else if (event.key.startsWith("Arrow")) move(node, event);
  });

  // one stop of the tab key a table; arrows move from number to number
  function rove(table) {
    const numbers = $$("[data-claim], [data-c]", table);
    numbers.forEach((node, index) => { node.tabIndex = index === 0 ? 0 : -1; node.setAttribute("role", "button"); });
  }
  function move(node, event) {
    const table = node.closest("table");
    if (!table) return;
    const lines = $$("tbody tr", table).map((line) => $$("[data-claim], [data-c]", line)).filter((line) => line.length);
    const at = lines.findIndex((line) => line.includes(node));
    const inLine = lines[at].indexOf(node);
    const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!steps) return;
    const line = lines[at + steps[0]];
    const next = line?.[Math.min(inLine + steps[1], line.length - 1)];
    if (!next) return;
    event.preventDefault();
    node.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }
  $$("p [data-claim]").forEach((node) => {
    if (!/#value#[^#]*#[^#]*$/.test(node.dataset.claim)) return;
    node.tabIndex = 0;
    node.setAttribute("role", "button");
  });

  // ---- links to tables and rows ----
  function follow() {
    const [id, ...rest] = decodeHash().split(":");
    const target = id && document.getElementById(id);
    if (!target) return;
    for (let node = target; node; node = node.parentElement) if (node.tagName === "DETAILS") node.open = true;
    const host = target.closest("[data-table]");
    if (host && rest.length) view(host.dataset.table)?.go(rest.join(":"));
    else target.scrollIntoView();
  }
  // the words of a row stay encoded: they may hold slashes and colons
  function decodeHash() {
    const [id, ...rest] = location.hash.slice(1).split(":");
    return [decodeURIComponent(id), ...rest].join(":");
  }
  addEventListener("hashchange", follow);

  // ---- figures ----
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const drawings = new Map();
  function vega() {
    if (!window.vegaEmbed) document.head.append(Object.assign(element("script"), { textContent: $("#library").textContent }));
    return window.vegaEmbed;
  }
  async function draw(figure, isDark = dark.matches) {
    const spec = JSON.parse($("script", figure).textContent);
    const live = $(".live", figure);
    const themes = JSON.parse($("#themes").textContent);
    const theme = isDark ? themes.dark : themes.light;
    drawings.get(figure)?.finalize();
    // side by side, names would not fit a narrow screen
    if (live.clientWidth < 480) theme.legend.columns = 1;
    try {
      const embed = vega();
      await new Promise((resolve) => setTimeout(resolve));
      drawings.set(figure, await embed(live, spec, {
        config: theme,
        // the editor is a web site
        actions: { export: { svg: true, png: true }, source: true, compiled: false, editor: false },
        ast: true,
        downloadFileName: figure.id,
        mode: "vega-lite",
        renderer: "svg",
        tooltip: { theme: isDark ? "dark" : "light" },
      }));
      const picture = $("svg.marks", live);
      picture.setAttribute("role", "img");
      picture.setAttribute("aria-label", live.dataset.title);
      $("summary", live)?.setAttribute("aria-label", "Save this figure");
      figure.classList.add("drawn");
    } catch (error) {
      console.error(figure.id, error);
      live.textContent = "This figure could not be drawn; stemma report RUN writes it as a file.";
    }
  }
  dark.addEventListener("change", () => { for (const figure of drawings.keys()) queue.push(() => draw(figure)); work(); });
  addEventListener("beforeprint", () => { for (const figure of drawings.keys()) if (dark.matches) draw(figure, false); });
  $$("figure.chart, .main-table").forEach((each) => nearby.observe(each));
  if (location.hash) follow();
})();
