// In the head, before anything is painted: the theme that was chosen last.
"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("js");
  try {
    const chosen = localStorage.getItem("plumbline-theme");
    if (chosen === "dark" || chosen === "light") root.dataset.theme = chosen;
  } catch (error) {
    // No storage: the system's preference holds.
  }
})();
