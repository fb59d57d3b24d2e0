"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const LEVELS = 6, CHUNK = 300, BLOCK = 1200, EARLY = 1200, LISTED = 20;
  const text = document.getElementById("text");
  const detail = document.getElementById("detail");
  const hint = detail.firstElementChild;

  const decoded = (encoded, Kind) => {
    const binary = atob(encoded);
    const bytes = new Uint8Array(binary.length);
    for (let i = 0; i < binary.length; i += 1) bytes[i] = binary.charCodeAt(i);
    return new Kind(bytes.buffer);
  };
  const element = (name, classes, content) => {
    const made = document.createElement(name);
    if (classes) made.className = classes;
    if (content !== undefined) made.textContent = content;
    return made;
  };

  const Ids = data.names.length < 2 ** 16 ? Uint16Array : Uint32Array;
  // columns of all documents at once: they are small, and the ranking needs them; top ids on first use
  const documents = data.documents.map((source, number) => {
    const columns = {};
    for (const [name, encoded] of Object.entries(source.columns)) columns[name] = decoded(encoded, Float32Array);
    const bounds = decoded(source.bounds, Uint32Array);
    const rows = new Int32Array(columns.kl.length);
    let row = 0;
    for (let i = 0; i < rows.length; i += 1) rows[i] = Number.isNaN(columns.kl[i]) ? -1 : row++;
    return { source, number, columns, bounds, rows, top: null };
  });
  const topOf = (doc) => {
    if (!doc.top) {
      doc.top = {};
      for (const side of ["base", "descendant"]) {
        const given = doc.source.top[side];
        doc.top[side] = {
          ids: decoded(given.ids, Ids),
          probability: decoded(given.probability, Uint16Array),
          width: given.width,
        };
      }
      doc.ids = decoded(doc.source.ids, Ids);
    }
    return doc.top;
  };
  const piece = (doc, i) => doc.source.text.slice(doc.bounds[i], doc.bounds[i + 1]);

  // what tokens are coloured by: the value of one, its classes, and whether levels grow with its square root
  const METRICS = {
    loss: { of: (c, i) => c.descendant_nll[i] - c.base_nll[i], classes: ["b", "w"], ends: ["better", "worse"] },
    kl: { of: (c, i) => c.kl[i], classes: ["", "k"], ends: ["", "apart"], root: true },
    entropy: { of: (c, i) => c.descendant_entropy[i] - c.base_entropy[i], classes: ["b", "w"], ends: ["surer", "less sure"] },
  };
  let total = 0;
  for (const doc of documents) { doc.offset = total; total += doc.rows.length; }
  for (const metric of Object.values(METRICS)) {
    const sizes = new Float64Array(total), docs = new Uint32Array(total), places = new Uint32Array(total);
    let count = 0;
    for (const doc of documents) {
      for (let i = 0; i < doc.rows.length; i += 1) {
        const value = metric.of(doc.columns, i);
        if (!Number.isFinite(value)) continue;
        sizes[count] = Math.abs(value); docs[count] = doc.number; places[count] = i;
        count += 1;
      }
    }
    metric.order = Array.from({ length: count }, (_, k) => k).sort((a, b) => sizes[b] - sizes[a] || a - b);
    metric.docs = docs; metric.places = places;
    // the strongest colour stands for the largest two in a hundred
    const high = count ? sizes[metric.order[Math.floor(count / 50)]] : 1;
    metric.scale = Math.max(high, 0.01);
    metric.ranks = null;
  }
  let metric = METRICS.loss;
  let selected = null;

  const levelOf = (value) => {
    if (!Number.isFinite(value)) return "";
    const share = Math.min(1, Math.abs(value) / metric.scale);
    const level = Math.round(LEVELS * (metric.root ? Math.sqrt(share) : share));
    const kind = metric.classes[value > 0 ? 1 : 0];
    return level && kind ? kind + level : "";
  };
  const classOf = (doc, i) => {
    const empty = doc.bounds[i] === doc.bounds[i + 1] ? " z" : "";
    const on = selected && selected.doc === doc && selected.i === i ? " on" : "";
    return doc.rows[i] < 0 ? "u" + empty : ("t " + levelOf(metric.of(doc.columns, i))).trimEnd() + empty + on;
  };

  // a chunk is plain text until it comes near the window; block elements end where lines end
  const chunkOf = new WeakMap();
  const live = new Set();
  const show = (chunk) => {
    if (live.has(chunk)) return;
    live.add(chunk);
    const fragment = document.createDocumentFragment();
    for (let i = chunk.first; i < chunk.last; i += 1) {
      const span = element("span", classOf(chunk.doc, i), piece(chunk.doc, i));
      span.dataset.i = i;
      if (chunk.doc.rows[i] >= 0) span.tabIndex = -1;
      fragment.append(span);
    }
    chunk.node.replaceChildren(fragment);
  };
  const hide = (chunk) => {
    if (!live.has(chunk) || (selected && chunk.node.contains(document.activeElement))) return;
    live.delete(chunk);
    chunk.node.textContent = chunk.plain;
  };
  const observer = new IntersectionObserver((entries) => {
    for (const entry of entries) (entry.isIntersecting ? show : hide)(chunkOf.get(entry.target));
  }, { rootMargin: "1200px 0px" });

  const number = (value, digits) => (Number.isFinite(value) ? value.toFixed(digits) : "n/a");
  // a cut may fall between the two units of one character
  const excerpt = (string) => string.replace(/^[\uDC00-\uDFFF]|[\uD800-\uDBFF]$/g, "").replace(/\s/g, " ");
  const signed = (value, digits) => (value >= 0 ? "+" : "") + number(value, digits).replace("-", "−");
  const heading = (doc) => {
    const made = element("h2");
    const { source, columns } = doc;
    const sums = { base: 0, descendant: 0, kl: 0 };
    let count = 0;
    for (let i = 0; i < doc.rows.length; i += 1) {
      if (doc.rows[i] < 0) continue;
      sums.base += columns.base_nll[i]; sums.descendant += columns.descendant_nll[i]; sums.kl += columns.kl[i];
      count += 1;
    }
    made.append(element("strong", "", `Document ${source.index}`), element("span", "", `${source.source}, row ${source.row}`));
    if (source.register !== "all") made.append(element("span", "", source.register));
    if (count) {
      made.append(
        element("span", "", `${count.toLocaleString("en")} tokens`),
        element("span", "", `loss ${number(sums.base / count, 3)} → ${number(sums.descendant / count, 3)}`),
        element("span", "", `KL ${number(sums.kl / count, 3)} nats/token`),
      );
    }
    return made;
  };
  const lay = (doc) => {
    const article = element("article");
    article.dataset.document = doc.number;
    const body = element("div", "text");
    article.append(heading(doc), body);
    const whole = doc.source.text, num = doc.rows.length;
    doc.chunks = [];
    if (!num) body.append(whole ? element("div", "block rest", whole) : element("p", "empty", "empty document"));
    let block = null, length = 0;
    const open = () => { block = element("div", "block"); length = 0; body.append(block); };
    if (num) {
      open();
      if (doc.bounds[0] > 0) block.append(element("span", "rest", whole.slice(0, doc.bounds[0])));
    }
    for (let first = 0; first < num;) {
      let last = first, ends = false;
      while (last < num && last - first < CHUNK && !ends) {
        // a new block where a line ends, so that what is drawn later moves nothing
        ends = last - first >= 40 && piece(doc, last).endsWith("\n");
        last += 1;
      }
      const node = element("span", "", whole.slice(doc.bounds[first], doc.bounds[last]));
      const chunk = { doc, first, last, node, plain: node.textContent };
      chunkOf.set(node, chunk);
      doc.chunks.push(chunk);
      block.append(node);
      observer.observe(node);
      length += last - first;
      first = last;
      // a line of any length would be laid out anew with each of its chunks: a very long one wraps early
      if ((ends || length >= BLOCK) && first < num) open();
    }
    if (num && doc.bounds[num] < whole.length) block.append(element("span", "rest", whole.slice(doc.bounds[num])));
    return article;
  };

  const SIGNS = { "\n": "⏎", "\t": "⇥", "\r": "␍" };
  const visible = (string) => string.replace(/[\n\t\r]/g, (sign) => SIGNS[sign]).replace(/^ | $/g, "␣") || "∅";
  const percent = (share) => (share >= 0.0005 ? `${(100 * share).toFixed(1)}%` : "<0.1%");
  const tops = (doc, i, side, title) => {
    const { ids, probability, width } = topOf(doc)[side];
    const made = element("div");
    const list = element("ol");
    for (let k = 0; k < width; k += 1) {
      const at = doc.rows[i] * width + k;
      const item = element("li", ids[at] === doc.ids[i] ? "target" : "");
      item.append(element("span", "", visible(data.names[ids[at]])), element("b", "", percent(probability[at] / data.probabilitySteps)));
      list.append(item);
    }
    made.append(element("h3", "", title), list);
    return made;
  };
  const describe = (doc, i) => {
    const c = doc.columns;
    const table = element("table");
    const head = element("tr");
    for (const [name, classes] of [["", ""], ["base", "number"], ["descendant", "number"], ["change", "number"]]) head.append(element("th", classes, name));
    const thead = element("thead"), body = element("tbody");
    thead.append(head);
    const row = (name, cells) => {
      const made = element("tr");
      made.append(element("th", "", name), ...cells.map((cell) => element("td", "number", cell)));
      body.append(made);
    };
    row("loss", [number(c.base_nll[i], 3), number(c.descendant_nll[i], 3), signed(c.descendant_nll[i] - c.base_nll[i], 3)]);
    row("probability", [percent(Math.exp(-c.base_nll[i])), percent(Math.exp(-c.descendant_nll[i])), ""]);
    row("entropy", [number(c.base_entropy[i], 3), number(c.descendant_entropy[i], 3), signed(c.descendant_entropy[i] - c.base_entropy[i], 3)]);
    row("KL", ["", "", number(c.kl[i], 4)]);
    table.append(thead, body);
    const both = element("div", "tops");
    both.append(tops(doc, i, "base", "base: top five"), tops(doc, i, "descendant", "descendant: top five"));
    topOf(doc);
    const shown = piece(doc, i) || data.names[doc.ids[i]];
    detail.replaceChildren(
      element("p", "token", visible(shown)),
      element("p", "where", `document ${doc.source.index}, token ${i}`),
      table, both,
    );
  };

  const tokenAt = (target) => {
    const span = target.closest && target.closest("span[data-i]");
    if (!span || !text.contains(span)) return null;
    const doc = documents[span.closest("article").dataset.document], i = Number(span.dataset.i);
    return doc.rows[i] < 0 ? null : { doc, i };
  };
  const spanOf = ({ doc, i }) => {
    let low = 0, high = doc.chunks.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (doc.chunks[middle].first <= i) low = middle; else high = middle - 1;
    }
    show(doc.chunks[low]);
    return doc.chunks[low].node.children[i - doc.chunks[low].first];
  };
  const rankOf = (token) => {
    if (!metric.ranks) {
      metric.ranks = new Uint32Array(total);
      metric.order.forEach((k, rank) => { metric.ranks[documents[metric.docs[k]].offset + metric.places[k]] = rank; });
    }
    return metric.ranks[token.doc.offset + token.i];
  };
  const select = (token, scroll) => {
    const before = selected;
    selected = token;
    if (before) { const span = spanOf(before); span.className = classOf(before.doc, before.i); span.tabIndex = -1; }
    const span = spanOf(token);
    span.className = classOf(token.doc, token.i);
    span.tabIndex = 0;
    if (scroll) span.scrollIntoView({ block: "center" });
    span.focus({ preventScroll: true });
    describe(token.doc, token.i);
    document.getElementById("rank").textContent = `${(rankOf(token) + 1).toLocaleString("en")} of ${metric.order.length.toLocaleString("en")}`;
  };
  const atRank = (rank) => ({ doc: documents[metric.docs[metric.order[rank]]], i: metric.places[metric.order[rank]] });
  const step = (by) => {
    if (!metric.order.length) return;
    const rank = selected ? rankOf(selected) + by : by > 0 ? 0 : metric.order.length - 1;
    if (rank >= 0 && rank < metric.order.length) select(atRank(rank), true);
  };
  const neighbour = (by) => {
    if (!selected) return step(1);
    let { doc, i } = selected;
    do { i += by; } while (i >= 0 && i < doc.rows.length && doc.rows[i] < 0);
    if (i >= 0 && i < doc.rows.length) select({ doc, i }, false);
    const box = spanOf(selected).getBoundingClientRect();
    if (box.top < 80 || box.bottom > window.innerHeight - 20) spanOf(selected).scrollIntoView({ block: "center" });
  };

  const legend = () => {
    const box = document.getElementById("legend");
    const swatches = element("span", "swatches");
    const [negative, positive] = metric.classes;
    if (negative) for (let k = LEVELS; k > 0; k -= 1) swatches.append(element("i", negative + k));
    swatches.append(element("i"));
    for (let k = 1; k <= LEVELS; k += 1) swatches.append(element("i", positive + k));
    const edge = metric.scale.toFixed(metric.scale < 1 ? 2 : 1);
    box.replaceChildren(
      element("span", "", negative ? `${metric.ends[0]} −${edge}` : "0"), swatches,
      element("span", "", `${negative ? "+" : ""}${edge} nats ${metric.ends[1]}`),
    );
  };
  const list = () => {
    const items = [];
    for (let rank = 0; rank < Math.min(LISTED, metric.order.length); rank += 1) {
      const { doc, i } = atRank(rank);
      const from = doc.bounds[i], to = doc.bounds[i + 1], whole = doc.source.text;
      const button = element("button");
      const context = element("span", "context");
      const value = metric.of(doc.columns, i);
      context.append(
        excerpt(whole.slice(Math.max(0, from - 14), from)),
        element("mark", levelOf(value), visible(piece(doc, i) || data.names[topOf(doc) && doc.ids[i]])),
        excerpt(whole.slice(to, to + 30)),
      );
      button.type = "button";
      button.dataset.rank = rank;
      button.append(context, element("b", "", metric.classes[0] ? signed(value, 2) : number(value, 2)));
      const item = element("li");
      item.append(button);
      items.push(item);
    }
    document.querySelector("#largest ol").replaceChildren(...items);
  };
  const recolour = () => {
    for (const chunk of live) {
      for (let i = chunk.first; i < chunk.last; i += 1) chunk.node.children[i - chunk.first].className = classOf(chunk.doc, i);
    }
    legend();
    list();
    document.getElementById("rank").textContent = "largest changes";
    if (selected) document.getElementById("rank").textContent = `${(rankOf(selected) + 1).toLocaleString("en")} of ${metric.order.length.toLocaleString("en")}`;
  };

  text.append(...documents.map(lay));
  // what is probably on the screen, before the observer first looks
  let early = 0;
  for (const chunk of documents.flatMap((doc) => doc.chunks)) {
    if (early >= EARLY) break;
    show(chunk);
    early += chunk.last - chunk.first;
  }
  recolour();
  text.addEventListener("mouseover", (event) => { const token = tokenAt(event.target); if (token) describe(token.doc, token.i); });
  text.addEventListener("mouseleave", () => {
    if (selected) describe(selected.doc, selected.i); else detail.replaceChildren(hint);
  });
  text.addEventListener("click", (event) => { const token = tokenAt(event.target); if (token) select(token, false); });
  text.addEventListener("focusin", (event) => { const token = tokenAt(event.target); if (token) describe(token.doc, token.i); });
  document.getElementById("largest").addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) select(atRank(Number(button.dataset.rank)), true);
  });
  document.getElementById("next").addEventListener("click", () => step(1));
  document.getElementById("previous").addEventListener("click", () => step(-1));
  for (const input of document.querySelectorAll("input[name=metric]")) {
    input.addEventListener("change", () => { metric = METRICS[input.value]; recolour(); });
    // a browser may restore the choice of an earlier visit
    if (input.checked && METRICS[input.value] !== metric) { metric = METRICS[input.value]; recolour(); }
  }
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const inRadio = event.target.matches && event.target.matches("input");
    if (event.key === "n") step(1);
    else if (event.key === "p") step(-1);
    else if (event.key === "ArrowRight" && !inRadio) { neighbour(1); event.preventDefault(); }
    else if (event.key === "ArrowLeft" && !inRadio) { neighbour(-1); event.preventDefault(); }
  });
})();
