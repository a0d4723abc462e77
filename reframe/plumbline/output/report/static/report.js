// What every page has: the theme's button, and word of a report that is old by now.
"use strict";
(() => {
  const root = document.documentElement;
  const preferred = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : preferred.matches);

  const button = document.getElementById("theme");
  const label = () => {
    button.textContent = dark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to the ${dark() ? "light" : "dark"} theme`);
  };
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    try {
      localStorage.setItem("plumbline-theme", root.dataset.theme);
    } catch (error) {
      // No storage: it holds for this page.
    }
    label();
  });
  preferred.addEventListener("change", label);
  label();

  const age = document.getElementById("age");
  const seconds = Date.now() / 1000 - Number(age.dataset.written);
  if (seconds > Number(age.dataset.stale)) {
    age.textContent = `This report was written ${Math.round(seconds / 86400)} days ago; it tells ` +
      "nothing of what happened since.";
    age.hidden = false;
  }
})();
