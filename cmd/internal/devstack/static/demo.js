"use strict";

// The page asks for the state and draws it: figures as text, the stream as dots that move, the last minute as lines. What
// moves is made of the figures: so many dots leave a box as messages did between two answers, each dot for a number of them.
const askEvery = 300;
const dotsASecond = 40;
const travel = 900; // milliseconds between two boxes

const id = (name) => document.getElementById(name);
const number = (n) => n.toLocaleString("en-US");
const calm = matchMedia("(prefers-reduced-motion: reduce)");
const narrow = matchMedia("(max-width: 40rem)");

function text(name, value) {
  const at = id(name);
  if (at.textContent !== value) at.textContent = value;
}

function svg(parent, name, attributes, content) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (content !== undefined) made.textContent = content;
  parent.append(made);
  return made;
}

// The stream's boxes, by their middle; dots go from one to another.
const layouts = {
  wide: { width: 960, height: 218, box: [136, 58], at: {
    producer: [70, 109], kafka: [310, 109], consumer: [560, 109], accounts: [890, 31], dropped: [890, 109], lane: [890, 187] } },
  narrow: { width: 340, height: 420, box: [104, 54], at: {
    producer: [170, 30], kafka: [170, 134], consumer: [170, 238], accounts: [54, 390], dropped: [170, 390], lane: [286, 390] } },
};
const names = { producer: "producer", kafka: "Kafka", consumer: "consumer", accounts: "accounts", dropped: "dropped",
  lane: "another try" };
const pipes = [["producer", "kafka"], ["kafka", "consumer"], ["consumer", "accounts"], ["consumer", "dropped"],
  ["consumer", "lane"]];

const stream = {
  dots: [],
  draw() {
    const plan = narrow.matches ? layouts.narrow : layouts.wide;
    const [width, height] = plan.box;
    const root = id("stream");
    root.replaceChildren();
    root.setAttribute("viewBox", `0 0 ${plan.width} ${plan.height}`);
    for (const [from, to] of pipes) {
      const [a, b] = [plan.at[from], plan.at[to]];
      svg(root, "line", { class: "pipe", x1: a[0], y1: a[1], x2: b[0], y2: b[1] });
    }
    this.layer = svg(root, "g", {});
    this.dots = [];
    this.boxes = {};
    for (const [name, at] of Object.entries(plan.at)) {
      const group = svg(root, "g", { class: "node" });
      const left = at[0] - width / 2, top = at[1] - height / 2;
      svg(group, "rect", { x: left, y: top, width, height, rx: 10 });
      const fill = svg(group, "rect", { x: left + 12, y: top + height - 7, width: 0, height: 3, rx: 1.5, class: "fill" });
      const title = svg(group, "text", { x: at[0], y: at[1] - 5 }, names[name]);
      const sub = svg(group, "text", { class: "sub", x: at[0], y: at[1] + 13 }, "");
      this.boxes[name] = { group, fill, title, sub, width: width - 24 };
    }
    this.boxes.accounts.group.classList.add("to-new");
    this.boxes.dropped.group.classList.add("to-copy");
    this.plan = plan;
  },
  say(name, sub) {
    const at = this.boxes[name].sub;
    if (at.textContent !== sub) at.textContent = sub;
  },
  // send has n dots leave one box after the other within the time until the next answer.
  send(route, kind, n) {
    if (calm.matches || document.hidden) return;
    const now = performance.now();
    for (let i = 0; i < n && this.dots.length < 400; i++) {
      const dot = svg(this.layer, "circle", { class: `dot ${kind}`, r: 4.5, cx: -20, cy: -20 });
      this.dots.push({ dot, route, begin: now + (i + Math.random()) * askEvery / n, shift: (Math.random() - 0.5) * 26 });
    }
  },
  // recoil has the dots that are on their way to the consumer, which has died, go back: what was not committed comes again.
  recoil() {
    const now = performance.now();
    for (const one of this.dots) {
      const part = (now - one.begin) / travel;
      if (one.route[0] !== "kafka" || part >= 1) continue;
      one.route = ["consumer", "kafka"];
      one.begin = now - (1 - Math.max(0, part)) * travel;
      one.shift = -one.shift;
    }
  },
  // move puts each dot where it is by now. Between two boxes it runs along a line beside the pipe's.
  move(now) {
    this.dots = this.dots.filter(({ dot, route, begin, shift }) => {
      const gone = (now - begin) / travel;
      if (gone >= route.length - 1) {
        dot.remove();
        return false;
      }
      if (gone < 0) return true;
      const leg = Math.floor(gone);
      const [a, b] = [this.plan.at[route[leg]], this.plan.at[route[leg + 1]]];
      const part = gone - leg;
      const long = Math.hypot(b[0] - a[0], b[1] - a[1]);
      const aside = shift * Math.sin(Math.PI * part) * 0.9;
      dot.setAttribute("cx", a[0] + (b[0] - a[0]) * part - (b[1] - a[1]) / long * aside);
      dot.setAttribute("cy", a[1] + (b[1] - a[1]) * part + (b[0] - a[0]) / long * aside);
      return true;
    });
  },
};

// rests are parts of a dot that are not sent yet.
const rests = {};
function dots(name, route, kind, messages, each) {
  const due = (rests[name] || 0) + Math.max(0, messages) / each;
  const n = Math.min(Math.floor(due), 60);
  rests[name] = Math.min(due - n, 1);
  stream.send(route, kind, n);
}

let before = null;
let fastest = 0;
function flow(s) {
  const c = s.counts;
  fastest = Math.max(fastest * 0.98, c.rate);
  const each = Math.max(1, nice(fastest / dotsASecond));
  text("each", each === 1 ? "a dot is a message" : `a dot is ${number(each)} messages`);
  if (before) {
    const copies = c.copies - before.copies;
    dots("new", ["producer", "kafka"], "new", c.produced - before.produced - copies, each);
    dots("copy", ["producer", "kafka"], "copy", copies, each);
    dots("effect", ["kafka", "consumer", "accounts"], "new", c.effects - before.effects, each);
    dots("drop", ["kafka", "consumer", "dropped"], "copy", c.duplicates - before.duplicates, each);
    dots("park", ["kafka", "consumer", "lane"], "held", c.parked - before.parked, 1);
    dots("booked", ["lane", "consumer", "accounts"], "held", before.parked - c.parked, 1);
  }
  if (before && c.crashes > before.crashes) mourn();
  before = c;
  stream.say("producer", `${number(c.produced)} sent`);
  stream.say("kafka", `lag ${number(c.lag)}`);
  stream.say("accounts", `${number(c.effects)} effects`);
  stream.say("dropped", `${number(c.duplicates)} copies`);
  const { fill, width } = stream.boxes.kafka;
  fill.setAttribute("width", Math.min(1, c.lag / Math.max(1, fastest)) * width);
  consumerBox(s);
}

// A death may be over before the next answer: it is shown for a moment all the same.
let dead = 0;
function mourn() {
  dead = performance.now() + 900;
  stream.recoil();
}

function consumerBox(s) {
  const { group, title } = stream.boxes.consumer;
  const down = s.down || performance.now() < dead;
  group.classList.toggle("dead", down);
  title.textContent = down ? "✕ killed" : "consumer";
  stream.say("consumer", down ? "the next one starts" : `${number(s.counts.rate)} a second`);
  stream.boxes.lane.group.classList.toggle("lane", s.counts.parked > 0);
  stream.boxes.lane.title.textContent = s.refused ? "account 7" : names.lane;
  stream.say("lane", `${number(s.counts.parked)} waiting`);
}

// nice is the next round number.
function nice(n) {
  const scale = 10 ** Math.floor(Math.log10(Math.max(n, 1)));
  return [1, 2, 4, 6, 8, 10].find((m) => m * scale >= n) * scale;
}

// plot draws messages a second over the last minute, each over about a second, and when nobody consumed.
function plot(samples) {
  const root = id("plot");
  const width = root.clientWidth, height = root.clientHeight;
  root.replaceChildren();
  root.setAttribute("viewBox", `0 0 ${width} ${height}`);
  if (samples.length < 2) {
    svg(root, "text", { x: width / 2, y: height / 2, "text-anchor": "middle" }, "The lines begin with the first messages.");
    return;
  }
  const end = samples[samples.length - 1].at;
  const x = (at) => width - (end - at) / 60000 * width;
  const lines = { sent: rates(samples, "produced"), new: rates(samples, "effects"), copy: rates(samples, "duplicates") };
  const most = nice(Math.max(10, ...Object.values(lines).flat().map(([, v]) => v)));
  const y = (v) => height - 18 - v / most * (height - 40);
  samples.forEach((s, i) => {
    if (i === 0) return;
    const last = samples[i - 1];
    if (s.down) {
      svg(root, "rect", { class: "dead", x: x(last.at), y: 0, width: x(s.at) - x(last.at) + 0.5, height: height - 18 });
    }
  });
  for (const part of [0, 0.5, 1]) {
    svg(root, "line", { class: "grid", x1: 0, x2: width, y1: y(most * part), y2: y(most * part) });
    if (part > 0) svg(root, "text", { x: 6, y: y(most * part) - 4 }, number(most * part));
  }
  for (const [name, points] of Object.entries(lines)) {
    svg(root, "polyline", { class: name, points: points.map(([at, v]) => `${x(at).toFixed(1)},${y(v).toFixed(1)}`).join(" ") });
  }
  samples.forEach((s, i) => {
    if (i === 0 || s.crashes === samples[i - 1].crashes) return;
    svg(root, "line", { class: "death", x1: x(s.at), x2: x(s.at), y1: 16, y2: height - 18 });
    svg(root, "text", { class: "death", x: x(s.at), y: 13 }, "✕");
  });
  svg(root, "text", { x: 6, y: height - 5 }, "a minute ago");
  svg(root, "text", { x: width - 6, y: height - 5, "text-anchor": "end" }, "now");
}

function rates(samples, name) {
  const points = [];
  let first = 0;
  samples.forEach((s, i) => {
    while (first + 1 < i && s.at - samples[first + 1].at >= 1000) first++;
    const took = s.at - samples[first].at;
    if (took >= 500) points.push([s.at, (s[name] - samples[first][name]) * 1000 / took]);
  });
  return points;
}

const buttons = document.querySelectorAll("[data-do]");

// offer says whether a button does something now. One that does nothing keeps the keyboard's focus.
function offer(button, useful) {
  button.setAttribute("aria-disabled", String(!useful));
}

function show(s) {
  const marks = { right: "✓ right", wrong: "✗ wrong" };
  id("verdict").className = `verdict ${s.verdict ? `${s.verdict}-now` : ""}`;
  text("mark", marks[s.verdict] || "…");
  text("why", s.why);
  say(s.now, s.trouble);
  text("resend", number(s.resend));
  text("chaos", s.chaos ? "Pause chaos" : "Start chaos");
  document.querySelector("[data-do=chaos]").classList.toggle("on", s.chaos);
  for (const button of buttons) {
    offer(button, s.phase === "running" && !(button.dataset.do === "kill" && s.down) && !(button.dataset.do === "fail" && s.refused));
  }
  const operator = id("operator");
  operator.hidden = !s.operator || s.phase !== "running";
  operator.href = s.operator;
  if (s.counts) showCounts(s);
  else plot([]);
  if (s.events) showEvents(s.events);
}

function showCounts(s) {
  const c = s.counts;
  text("clock", c.clock);
  text("balance", number(c.balance));
  text("due", number(c.due));
  id("crashes").parentElement.classList.toggle("bad", c.crashes > 0);
  text("deaths", c.crashes === 1 ? "death" : "deaths");
  for (const name of ["produced", "received", "effects", "duplicates", "lag", "crashes"]) text(name, number(c[name]));
  text("copies", `${number(c.copies)} copies`);
  flow(s);
  plot(s.samples || []);
}

let told = "";
function showEvents(events) {
  const all = JSON.stringify(events);
  if (all === told) return;
  told = all;
  id("events").replaceChildren(...events.map((e) => {
    const line = document.createElement("li");
    const time = document.createElement("time");
    time.textContent = e.clock;
    line.append(time, e.text);
    return line;
  }));
}

function say(what, trouble) {
  text("now", what);
  id("now").classList.toggle("trouble", trouble);
}

let refusal = ""; // of a button, shown for a while
let shown = null;
async function ask() {
  try {
    const answer = await fetch("state", { cache: "no-store" });
    if (!answer.ok) throw new Error(answer.statusText);
    shown = await answer.json();
    show(shown);
    if (refusal) say(refusal, true);
  } catch {
    lost();
  }
  setTimeout(ask, shown && shown.phase === "ended" ? 1000 : askEvery);
}

// lost says that nobody answers any more. How it ended stays, where that was seen.
function lost() {
  for (const button of buttons) offer(button, false);
  id("operator").hidden = true;
  if (!shown || shown.phase !== "ended") say("The demo does not answer: it has ended, most likely. The terminal knows how.", true);
}

async function press(event) {
  const button = event.currentTarget;
  if (button.getAttribute("aria-disabled") === "true") return;
  offer(button, false);
  try {
    const answer = await fetch(button.dataset.do, { method: "POST" });
    if (!answer.ok) refuse(await answer.text());
    else if (button.dataset.do === "kill") mourn();
  } catch {
    lost();
  }
}

function refuse(why) {
  refusal = `That did not work: ${why.trim()}.`;
  say(refusal, true);
  setTimeout(() => { refusal = ""; }, 4000);
}

for (const button of buttons) button.addEventListener("click", press);
narrow.addEventListener("change", () => stream.draw());
stream.draw();
(function frame(now) {
  stream.move(now);
  requestAnimationFrame(frame);
})(performance.now());
ask();
