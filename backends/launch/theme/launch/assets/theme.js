// Applied before the first paint, so that the page does not flash in the other scheme.
try { const chosen = localStorage.getItem("scheme"); if (chosen) document.documentElement.dataset.scheme = chosen; } catch {}
