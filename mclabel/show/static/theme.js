// Light, dark, or what the system says: set before anything is painted.
(() => {
  const key = "mclabel-theme";
  const order = ["auto", "light", "dark"];
  const root = document.documentElement;
  const kept = () => {
    try {
      return localStorage.getItem(key);
    } catch {
      return null; // storage can be off, and is for some browsers where a file is opened
    }
  };
  const keep = (theme) => {
    try {
      localStorage.setItem(key, theme);
    } catch {
      return;
    }
  };
  let theme = order.includes(kept()) ? kept() : "auto";
  root.dataset.theme = theme;
  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const say = () => {
      button.textContent = `Theme: ${theme}`;
      root.dataset.theme = theme;
    };
    button.addEventListener("click", () => {
      theme = order[(order.indexOf(theme) + 1) % order.length];
      keep(theme);
      say();
    });
    say();
  });
})();
