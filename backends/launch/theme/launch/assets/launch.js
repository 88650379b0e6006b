const root = document.documentElement;
document.querySelector(".scheme").addEventListener("click", () => {
  const dark = root.dataset.scheme ? root.dataset.scheme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.scheme = dark ? "light" : "dark";
  try { localStorage.setItem("scheme", root.dataset.scheme); } catch {}
});

const menu = document.querySelector(".menu");
menu.addEventListener("click", () => {
  const open = document.body.classList.toggle("open");
  menu.setAttribute("aria-expanded", String(open));
});
document.querySelector("#navigation [aria-current]")?.scrollIntoView({ block: "center" });
scrollTo(0, location.hash ? scrollY : 0);

for (const block of document.querySelectorAll(".code")) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(block.querySelector("code").innerText);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  block.append(button);
  const scrolled = block.querySelector("pre");
  if (scrolled) scrolled.tabIndex = 0;
}

const query = document.querySelector("#query");
const results = document.querySelector("#results");
let index;
async function search() {
  index ??= fetch(query.dataset.index).then((response) => response.json());
  const words = query.value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = [];
  if (words.length) {
    for (const page of await index) {
      for (const heading of page.headings) {
        const text = heading.text.toLowerCase();
        if (words.every((word) => text.includes(word))) {
          found.push({ title: heading.text.replace(/\s*#$/, ""), text: page.title, url: `${page.url}#${heading.id}`, score: text.length });
        }
      }
      const text = `${page.title} ${page.text}`.toLowerCase();
      if (words.every((word) => text.includes(word))) {
        const inTitle = words.every((word) => page.title.toLowerCase().includes(word));
        found.push({ title: page.title, text: page.text, url: page.url, score: inTitle ? 0 : 60 });
      }
    }
  }
  found.sort((one, other) => one.score - other.score);
  results.replaceChildren(...found.slice(0, 12).map((each) => {
    const item = document.createElement("li");
    const link = document.createElement("a");
    const note = document.createElement("small");
    link.href = each.url;
    link.textContent = each.title;
    note.textContent = each.text;
    link.append(note);
    item.append(link);
    return item;
  }));
  results.hidden = found.length === 0;
}
query.addEventListener("input", search);
addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement === document.body) { event.preventDefault(); query.focus(); }
  if (event.key === "Escape") { results.hidden = true; }
});
