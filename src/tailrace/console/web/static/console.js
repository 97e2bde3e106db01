// The parts of a page that change: times in the browser's zone, live regions and the tail by one event stream, copying.
// Numbers stay the text that the server wrote: nothing of a record is parsed here.

const zone = new Intl.DateTimeFormat(undefined, {
  year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit",
});
const exact = new Intl.DateTimeFormat(undefined, {
  dateStyle: "full", timeStyle: "long",
});

function local(root) {
  for (const node of root.querySelectorAll("time[datetime]:not([data-local])")) {
    const at = new Date(node.dateTime);
    if (Number.isNaN(at.valueOf())) continue;
    node.textContent = zone.format(at);
    node.title = `${exact.format(at)}, ${node.dateTime}`;
    node.dataset.local = "";
  }
}

function copiers(root) {
  if (!navigator.clipboard) return;
  for (const button of root.querySelectorAll("[data-copy][hidden]")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(button.closest(".code").querySelector("code").textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
  }
}

function prepare(root) { local(root); copiers(root); }

// -- live regions -----------------------------------------------------------------------------------------------------
const sign = document.getElementById("live");
const word = document.getElementById("live-text");
const button = document.getElementById("live-button");
const tail = document.getElementById("tail");
let source = null;
let paused = false;

function say(text, kind) {
  if (word.textContent !== text) word.textContent = text;
  sign.classList.toggle("off", kind === "off");
  sign.classList.toggle("lost", kind === "lost");
}

function isInUse(region) {
  const chosen = document.getSelection();
  if (chosen && !chosen.isCollapsed && region.contains(chosen.anchorNode)) return true;
  return region.contains(document.activeElement) && document.activeElement.matches("input, select, textarea");
}

const waiting = new Map(); // regions that changed while the reader had selected something in them, or was typing there

function replace({ name, html }) {
  const region = document.querySelector(`[data-live="${CSS.escape(name)}"]`);
  if (!region) return;
  if (isInUse(region)) { waiting.set(name, html); return; }
  waiting.delete(name);
  const key = region.contains(document.activeElement) && document.activeElement.dataset.key;
  const scrolled = [...region.querySelectorAll(".scroll")].map((box) => box.scrollLeft);
  region.innerHTML = html;
  prepare(region);
  region.querySelectorAll(".scroll").forEach((box, n) => { box.scrollLeft = scrolled[n] ?? 0; });
  if (key) region.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus();
}

// Regions that wait are replaced a little later: a click first removes the selection, and must still find its link.
let freed = 0;
function catchUp() {
  clearTimeout(freed);
  freed = setTimeout(() => { for (const [name, html] of [...waiting]) replace({ name, html }); }, 300);
}
document.addEventListener("selectionchange", catchUp);
document.addEventListener("focusout", catchUp);

// -- the tail: rows that the server has rendered, the newest last -------------------------------------------------------
const MOST_ROWS = 500;
let cursor = "";
let missed = 0n;

function addRows({ html, dropped }, id) {
  const body = document.getElementById("tail-rows");
  const box = document.getElementById("tail-box");
  const atEnd = box.scrollTop + box.clientHeight >= box.scrollHeight - 40;
  body.insertAdjacentHTML("beforeend", html);
  while (body.rows.length > MOST_ROWS) body.rows[0].remove();
  prepare(body);
  missed += BigInt(dropped);
  document.getElementById("tail-dropped").textContent = missed.toLocaleString();
  document.getElementById("tail-waiting").hidden = body.rows.length > 0;
  if (atEnd) box.scrollTop = box.scrollHeight;
  cursor = id;
}

function address() {
  const at = new URL(location.href);
  at.searchParams.delete("notice");
  if (tail && cursor) at.searchParams.set("from", cursor);
  return at;
}

function open() {
  if (source || paused) return;
  source = new EventSource(address());
  source.onopen = () => say("live");
  source.onerror = () => {
    say("reconnecting", "lost");
    if (source && source.readyState === EventSource.CLOSED) { source = null; comeBackLater(); }
  };
  source.addEventListener("region", (event) => replace(JSON.parse(event.data)));
  source.addEventListener("rows", (event) => addRows(JSON.parse(event.data), event.lastEventId));
  source.addEventListener("problem", () => say("the server cannot answer", "lost"));
}

function close() { source?.close(); source = null; waiting.clear(); }

// The server has refused the event stream, and EventSource does not say why: ask as it does, and read the status.
const REFUSALS = {
  401: "the server does not know this page's token: open the address that it has printed",
  403: "you may not see this page any more",
  404: "what this page shows is gone",
  410: "what this page shows is no longer kept: open it again",
  416: "the place where this page was is no longer there: open it again",
  429: "too many pages are open",
};
let later = 0;

function comeBackLater() { clearTimeout(later); later = setTimeout(comeBack, 2000); }

async function comeBack() {
  if (source || paused || document.hidden) return;
  const asking = new AbortController();
  let status = 0;
  try {
    status = (await fetch(address(), { headers: { Accept: "text/event-stream" }, signal: asking.signal })).status;
  } catch { /* the server is away */ }
  asking.abort();
  if (status === 200) { open(); return; }
  say(REFUSALS[status] ?? "reconnecting", "lost");
  comeBackLater();
}

if (sign && (tail || document.querySelector("[data-live]"))) {
  sign.hidden = false;
  button.addEventListener("click", () => {
    paused = !paused;
    button.textContent = paused ? "Resume" : "Pause";
    button.setAttribute("aria-pressed", String(paused));
    if (paused) { close(); say("paused", "off"); } else open();
  });
  document.addEventListener("visibilitychange", () => {
    if (paused) return;
    if (document.hidden) close(); else open();
  });
  addEventListener("pagehide", close);
  open();
}
prepare(document);
