// A table of contents of the sections that are seen.
import { element } from "./dom.js";

/** The list, and `show()`, which follows the headings of `page`. */
export function contents(page) {
  const list = element("ol");
  const node = element("nav", { class: "contents", "aria-label": "Contents" }, list);
  let listed = "";
  const show = () => {
    const headings = [...page.querySelectorAll("section > h2[id]")].filter((heading) => !heading.closest("[hidden]"));
    const now = JSON.stringify(headings.map(({ id }) => id));
    if (now === listed) return;
    listed = now;
    // The address belongs to the views, so these links move by hand.
    const jump = (heading) => (event) => {
      event.preventDefault();
      heading.scrollIntoView({ block: "start" });
      heading.setAttribute("tabindex", "-1");
      heading.focus({ preventScroll: true });
    };
    list.replaceChildren(...headings.map((heading) => element("li", {}, element("a", { href: `#${heading.id}`, onclick: jump(heading) }, heading.textContent))));
  };
  return { node, show };
}
