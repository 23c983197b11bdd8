// The settings in which runs differ.
import { element, framed, replace, section, table } from "./dom.js";
import { counted } from "./format.js";
import { differing, plain } from "./labels.js";
import { full_name } from "./lines.js";

/** More lines than this are no comparison side by side; their settings can be columns of the table of runs. */
const SIDE_BY_SIDE = 12;

/** The section, `show(lines)` and `leave()`. What all have comes first: what only some have mostly follows from the method or the model. */
export function differences_section() {
  const [place, others] = [element("div"), element("div")];
  const title = element("summary");
  let [shown, of_some] = [[], []];
  // A table that is not seen has no width to be fitted to.
  const fill = () => (details.open ? replace(others, settings_table("Settings that only some lines have", shown, of_some)) : others.replaceChildren());
  const details = element("details", { ontoggle: fill }, title, others);
  const node = section("differences", "Settings that differ", place, details);
  // On paper nothing can be opened.
  let was_open = false;
  const print = () => {
    was_open = details.open;
    details.open = true;
    fill();
  };
  const unprint = () => {
    details.open = was_open;
    fill();
  };
  addEventListener("beforeprint", print);
  addEventListener("afterprint", unprint);
  const leave = () => {
    removeEventListener("beforeprint", print);
    removeEventListener("afterprint", unprint);
  };
  const show = (lines) => {
    node.hidden = lines.length < 2;
    if (node.hidden) return;
    const settings = lines.map(({ members: [{ story }] }) => story.settings);
    const keys = differing(settings);
    const is_common = (key) => settings.every((one) => key in one);
    const common = keys.filter(is_common);
    [shown, of_some] = [lines, keys.filter((key) => !is_common(key))];
    if (keys.length === 0) replace(place, element("p", {}, "None, but for the seed."));
    else if (common.length === 0) replace(place, element("p", {}, "None of those that all lines have."));
    else replace(place, settings_table("Settings that differ", lines, common));
    details.hidden = of_some.length === 0;
    if (details.hidden) return;
    replace(title, element("span", {}, `${counted(of_some.length, "setting")} that only some of these lines have`));
    fill();
  };
  return { node, show, leave };
}

function settings_table(title, lines, keys) {
  return framed(title, lines.length > SIDE_BY_SIDE ? by_line(lines, keys) : by_setting(lines, keys));
}

function by_setting(lines, keys) {
  const columns = [{ title: "Setting", text: (key) => element("code", {}, key) }, ...lines.map((line) => ({ title: full_name(line), text: (key) => plain(line.members[0].story.settings[key]) }))];
  return table("One row a setting", columns, keys);
}

function by_line(lines, keys) {
  const columns = [{ title: "Line", text: full_name }, ...keys.map((key) => ({ title: key, text: (line) => plain(line.members[0].story.settings[key]) }))];
  return table("One row a line", columns, lines);
}
