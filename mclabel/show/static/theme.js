// Theme of the page: light, dark, or the system's setting. It is set before the first paint.
(() => {
  const key = "mclabel-theme";
  const order = ["auto", "light", "dark"];
  const root = document.documentElement;
  let theme = "auto";
  let storage = null;
  try {
    storage = localStorage;
    theme = order.find((name) => name === storage.getItem(key)) ?? theme;
  } catch {
    storage = null; // storage can be switched off; some browsers switch it off for local files
  }
  root.dataset.theme = theme;
  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const say = () => {
      button.textContent = `Theme: ${theme}`;
      root.dataset.theme = theme;
    };
    button.addEventListener("click", () => {
      theme = order[(order.indexOf(theme) + 1) % order.length];
      storage?.setItem(key, theme);
      say();
    });
    say();
  });
})();
