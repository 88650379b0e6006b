// Refreshes the live parts of a page, copies text to the clipboard, and shows timestamps in local time.
"use strict";

document.documentElement.classList.add("js");
const statusLine = document.getElementById("status");
const main = document.querySelector("main[data-live]");
const button = document.getElementById("live");

function announce(text) {
  if (statusLine) statusLine.textContent = text;
}

function localise(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const at = new Date(time.dateTime);
    time.title = at.toISOString();
    time.textContent = time.hasAttribute("data-day")
      ? at.toLocaleString() : at.toLocaleTimeString([], { hour12: false });
  }
}

async function copy(source) {
  const text = source.dataset.copy;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    getSelection().selectAllChildren(source.previousElementSibling);
    if (!document.execCommand("copy")) return announce("Copy failed. Select the text and copy it.");
  }
  announce("Copied.");
  source.textContent = "Copied";
  setTimeout(() => { source.textContent = "Copy"; }, 1500);
}

let paused = sessionStorage.getItem("paused") === "yes";

function updateLiveButton() {
  if (!button) return;
  button.setAttribute("aria-pressed", String(!paused));
  button.textContent = paused ? "Paused" : "Live";
}

async function refresh() {
  if (paused || document.hidden) return;
  let response;
  try {
    response = await fetch(location.href, { headers: { "x-live": "1" }, cache: "no-store" });
  } catch {
    return;
  }
  if (response.status === 401) return location.reload();
  if (!response.ok) return;
  const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
  localise(fresh);
  for (const part of document.querySelectorAll("[data-part]")) {
    const next = fresh.querySelector(`[data-part="${part.dataset.part}"]`);
    // Keep a part that has the focus: replacing it would interrupt the user.
    if (next && !part.contains(document.activeElement) && part.innerHTML !== next.innerHTML) {
      part.replaceChildren(...next.childNodes);
    }
  }
}

document.addEventListener("click", (event) => {
  const source = event.target.closest("[data-copy]");
  if (source) copy(source);
});
for (const select of document.querySelectorAll("select[data-submit]")) {
  select.addEventListener("change", () => select.form.submit());
}
localise(document);
updateLiveButton();
if (main) {
  button.addEventListener("click", () => {
    paused = !paused;
    sessionStorage.setItem("paused", paused ? "yes" : "no");
    announce(paused ? "Live updates paused." : "Live updates resumed.");
    updateLiveButton();
  });
  setInterval(refresh, Number(main.dataset.live) * 1000);
}
