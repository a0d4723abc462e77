// Scripts of every page: the button for the theme, and the banner of an old report.
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
      // Without storage the theme is for this page only.
    }
    label();
  });
  preferred.addEventListener("change", label);
  label();

  const age = document.getElementById("age");
  const seconds = Date.now() / 1000 - Number(age.dataset.written);
  if (seconds > Number(age.dataset.stale)) {
    age.textContent = `This report was written ${Math.round(seconds / 86400)} days ago, ` +
      "so it may be out of date.";
    age.hidden = false;
  }
})();
