// The settings in which runs differ.
import { element, framed, replace, section, table } from "./dom.js";
import { differing, plain } from "./labels.js";
import { full_name } from "./lines.js";

/** More lines than this are no comparison side by side; their settings can be columns of the table of runs. */
const SIDE_BY_SIDE = 12;

/** The section and `show(lines)`. */
export function differences_section() {
  const place = element("div");
  const node = section("differences", "Settings that differ", place);
  const show = (lines) => {
    node.hidden = lines.length < 2;
    if (node.hidden) return;
    const settings = lines.map(({ members: [{ story }] }) => story.settings);
    const keys = differing(settings);
    if (keys.length === 0) return replace(place, element("p", {}, "None, but for the seed."));
    replace(place, framed("Settings that differ", lines.length > SIDE_BY_SIDE ? by_line(lines, keys) : by_setting(lines, keys)));
  };
  return { node, show };
}

function by_setting(lines, keys) {
  const columns = [{ title: "Setting", text: (key) => element("code", {}, key) }, ...lines.map((line) => ({ title: full_name(line), text: (key) => plain(line.members[0].story.settings[key]) }))];
  return table("One row a setting", columns, keys);
}

function by_line(lines, keys) {
  const columns = [{ title: "Line", text: full_name }, ...keys.map((key) => ({ title: key, text: (line) => plain(line.members[0].story.settings[key]) }))];
  return table("One row a line", columns, lines);
}
