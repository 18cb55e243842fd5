// What the page does beyond HTML: times in the reader's zone, all rows selected at once, figures kept fresh.
"use strict";

function localTimes(within) {
  if (new Date().getTimezoneOffset() === 0) return;
  for (const t of within.querySelectorAll("time[datetime]")) {
    const at = new Date(t.dateTime);
    if (isNaN(at)) continue;
    const two = n => String(n).padStart(2, "0");
    const day = at.getFullYear() + "-" + two(at.getMonth() + 1) + "-" + two(at.getDate());
    const utc = t.dateTime.slice(0, 10) === day ? t.dateTime.slice(11, 19) : t.textContent.replace(" UTC", "");
    t.textContent = day + " " + [at.getHours(), at.getMinutes(), at.getSeconds()].map(two).join(":") + " (" + utc + " UTC)";
  }
}

function selectAll() {
  for (const all of document.querySelectorAll("input[data-all]")) {
    const rows = () => [...all.form.querySelectorAll("input[name=row]")];
    const told = all.form.querySelector("[data-selected]");
    const count = () => {
      const n = rows().filter(r => r.checked).length;
      all.checked = n > 0 && n === rows().length;
      all.indeterminate = n > 0 && !all.checked;
      if (told) told.textContent = n + " selected";
    };
    all.closest("th").hidden = false;
    all.addEventListener("change", () => { rows().forEach(r => r.checked = all.checked); count(); });
    all.form.addEventListener("change", count);
    count();
  }
}

// inUse says that somebody works with what would be replaced: what is selected or has the focus stays.
function inUse(part) {
  const selection = getSelection();
  return part.contains(document.activeElement) ||
    selection && !selection.isCollapsed && (part.contains(selection.anchorNode) || part.contains(selection.focusNode));
}

async function refresh() {
  const told = document.getElementById("freshness");
  const part = document.getElementById("fresh");
  if (document.hidden || inUse(part)) return;
  let answer, text;
  try {
    answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(20000) });
    text = await answer.text();
  } catch {
    answer = null;
  }
  const next = answer && answer.ok && new DOMParser().parseFromString(text, "text/html");
  if (!next || !next.getElementById("fresh")) {
    told.className = "stale";
    told.textContent = !answer ? "No answer: what is shown is from the time beside." :
      answer.status === 401 ? "Signed out: reload the page to sign in." :
      "Not fresh: the answer was " + answer.status + ". What is shown is from the time beside.";
    return;
  }
  if (inUse(part)) return; // meanwhile
  const fresh = document.adoptNode(next.getElementById("fresh"));
  for (const d of part.querySelectorAll("details[id][open]")) {
    const same = fresh.querySelector("#" + CSS.escape(d.id));
    if (same) same.open = true;
  }
  const places = [...part.querySelectorAll(".scroll")].map(s => s.scrollLeft);
  localTimes(fresh);
  part.replaceWith(fresh);
  [...fresh.querySelectorAll(".scroll")].forEach((s, i) => { s.scrollLeft = places[i] || 0; });
  const asOf = document.adoptNode(next.getElementById("asof"));
  localTimes(asOf);
  document.getElementById("asof").replaceWith(asOf);
  told.className = "";
  told.textContent = "Kept fresh every 10 seconds.";
}

localTimes(document);
selectAll();
if (document.body.dataset.live) {
  const again = () => setTimeout(() => refresh().finally(again), 1000 * document.body.dataset.live);
  document.getElementById("freshness").textContent = "Kept fresh every 10 seconds.";
  again();
}
