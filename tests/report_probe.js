// What is wrong with a page as it is shown: labels on each other, labels cut off, a page or a box that is too narrow.
(() => {
  const seen = e => { const r = e.getBoundingClientRect(); return r.width > 0 && r.height > 0; };
  const faults = [];
  const page = document.documentElement;
  if (page.scrollWidth > innerWidth) faults.push(`the page is ${page.scrollWidth} wide in ${innerWidth}`);
  const drawings = [...document.querySelectorAll('figure svg')].filter(seen);
  let labels = 0;
  for (const drawing of drawings) {
    const name = drawing.querySelector('title').textContent;
    const own = drawing.getBoundingClientRect();
    const box = drawing.closest('figure').getBoundingClientRect();
    if (own.right > box.right + 0.5 || own.right > innerWidth) faults.push(`${name} is wider than its box`);
    const items = [...drawing.querySelectorAll('text, g.badge')].filter(e => seen(e) && !(e.closest('g.badge') && e.tagName === 'text'));
    labels += items.length;
    const told = items.map(e => [e.textContent, e.getBoundingClientRect()]);
    for (const [words, r] of told)
      if (r.left < own.left - 0.5 || r.right > own.right + 0.5 || r.top < own.top - 0.5 || r.bottom > own.bottom + 0.5)
        faults.push(`${name}: '${words}' is cut off`);
    for (let i = 0; i < told.length; i++) for (let j = 0; j < i; j++) {
      const [a, p] = told[i], [b, q] = told[j];
      const wide = Math.min(p.right, q.right) - Math.max(p.left, q.left);
      const high = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
      if (wide > 0.5 && high > 2.5) faults.push(`${name}: '${a}' lies on '${b}' by ${wide.toFixed(1)} x ${high.toFixed(1)}`);
    }
    const size = parseFloat(getComputedStyle(drawing.querySelector('text')).fontSize) * own.width / drawing.viewBox.baseVal.width;
    if (size < 10) faults.push(`${name}: text of ${size.toFixed(1)} pixels`);
  }
  for (const e of document.querySelectorAll('p, h1, h2, h3, li, dt, dd, figcaption')) {
    const r = e.getBoundingClientRect();
    if (e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0) faults.push(`cut off: ${e.textContent}`);
    if (r.right > innerWidth + 0.5) faults.push(`beyond the page: ${e.textContent}`);
  }
  for (const e of document.querySelectorAll('.scroll'))
    if (e.getBoundingClientRect().right > innerWidth) faults.push(`a table's box is beyond the page`);
  return {faults, labels, drawings: drawings.length, paper: getComputedStyle(document.body).backgroundColor};
})()
