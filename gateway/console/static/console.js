// Reads the live parts of a page again, copies lines, and writes times as this browser's person reads them.
"use strict";

document.documentElement.classList.add("js");
const said = document.getElementById("said");
const main = document.querySelector("main[data-live]");
const button = document.getElementById("live");

function tell(text) {
  if (said) said.textContent = text;
}

function localise(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const at = new Date(time.dateTime);
    time.title = at.toISOString();
    time.textContent = time.hasAttribute("data-day")
      ? at.toLocaleString() : at.toLocaleTimeString([], { hour12: false });
  }
}

async function copy(from) {
  const text = from.dataset.copy;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    getSelection().selectAllChildren(from.previousElementSibling);
    if (!document.execCommand("copy")) return tell("Not copied: select the line yourself.");
  }
  tell("Copied.");
  from.textContent = "Copied";
  setTimeout(() => { from.textContent = "Copy"; }, 1500);
}

let paused = sessionStorage.getItem("paused") === "yes";

function show() {
  if (!button) return;
  button.setAttribute("aria-pressed", String(!paused));
  button.textContent = paused ? "Paused" : "Live";
}

async function refresh() {
  if (paused || document.hidden) return;
  let answer;
  try {
    answer = await fetch(location.href, { headers: { "x-live": "1" }, cache: "no-store" });
  } catch {
    return;
  }
  if (answer.status === 401) return location.reload();
  if (!answer.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  localise(fresh);
  for (const part of document.querySelectorAll("[data-part]")) {
    const next = fresh.querySelector(`[data-part="${part.dataset.part}"]`);
    // Whoever is in the middle of it is not interrupted.
    if (next && !part.contains(document.activeElement) && part.innerHTML !== next.innerHTML) {
      part.replaceChildren(...next.childNodes);
    }
  }
}

document.addEventListener("click", (event) => {
  const from = event.target.closest("[data-copy]");
  if (from) copy(from);
});
for (const select of document.querySelectorAll("select[data-submit]")) {
  select.addEventListener("change", () => select.form.submit());
}
localise(document);
show();
if (main) {
  button.addEventListener("click", () => {
    paused = !paused;
    sessionStorage.setItem("paused", paused ? "yes" : "no");
    tell(paused ? "Paused." : "Live again.");
    show();
  });
  setInterval(refresh, Number(main.dataset.live) * 1000);
}
