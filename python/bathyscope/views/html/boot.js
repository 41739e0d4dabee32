"use strict";
// Before anything is painted: the theme that the reader chose, or that the address asks for (#dark, #light).
(function () {
  var wanted = /(?:^#|[#&])(dark|light)\b/.exec(location.hash);
  var theme = wanted ? wanted[1] : null;
  try { theme = theme || localStorage.getItem("bathyscope-theme"); } catch (e) { /* a file may have no storage */ }
  if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
  document.documentElement.classList.add("js");
})();
