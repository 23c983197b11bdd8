// What the page computes, without a browser: labels, groups, bands, smoothing, differences, filters, addresses.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

/** The page's modules are no package, so they are read as what they are from a folder that says so. */
const folder = mkdtempSync(join(tmpdir(), "fedeq-logic-"));
const assets = resolve(dirname(fileURLToPath(import.meta.url)), "../crates/viewer/assets");
writeFileSync(join(folder, "package.json"), '{ "type": "module" }');
for (const module of readdirSync(assets).filter((name) => name.endsWith(".js"))) writeFileSync(join(folder, module), readFileSync(join(assets, module)));
const night = { matches: false };
globalThis.matchMedia = (query) => (query.includes("dark") ? night : { matches: false });
const { shades_text, strokes, theme } = await import(join(folder, "colour.js"));
const { short_labels } = await import(join(folder, "labels.js"));
const { ABSCISSAE, EACH, SEEDS, at_the_end, curve_of, full_name, lines_of, sample, seconds_until, smoothed } = await import(join(folder, "lines.js"));
const { joined_columns, value_at } = await import(join(folder, "columns.js"));
const { score, scattered, percent } = await import(join(folder, "format.js"));
const { choices_of, parts_of, query_of } = await import(join(folder, "board_address.js"));
const { csv_cell } = await import(join(folder, "export.js"));
const { difference_between, difference_text, same_clients } = await import(join(folder, "division.js"));
const { fits } = await import(join(folder, "runs_columns.js"));
const { powers } = await import(join(folder, "scale.js"));

const info = (method, more = {}) => ({ method, title: method, model: "m", data: "d", seed: 0, ...more });

/** A run with the accuracies of its evaluations. */
function run(name, method, settings, accuracies, state = "finished", seed = 0) {
  const rounds = accuracies.map((_, index) => index + 1);
  const story = { settings, rounds: { round: rounds, up: rounds.map((round) => 10 * round), down: rounds.map(() => 0) }, evaluations: { round: rounds, local: accuracies }, timings: { round: rounds, spent: rounds } };
  return { row: { run: name, state, evaluated: rounds.at(-1), info: info(method, { seed }), local: { accuracy: accuracies.at(-1) } }, story };
}

const LOCAL = { of: (story) => story.evaluations.round.map((round, index) => [round, story.evaluations.local[index]]).filter(([, y]) => y != null) };

/** Cases that Rust's tests read too (`crates/run/src/compare/label.rs`, `crates/report/src/figure/legend.rs`). */
const shared = JSON.parse(readFileSync(resolve(dirname(fileURLToPath(import.meta.url)), "cases.json"), "utf8"));

test("labels are those of comparisons and reports", () => {
  for (const { what, items, labels } of shared.labels) {
    assert.deepEqual(short_labels(items.map(({ settings, ...info }) => ({ info, settings, seed: null, run: null }))), labels, what);
  }
});

test("labels say only what differs", () => {
  const item = (method, settings, seed = 0) => ({ info: info(method), settings, seed, run: `${method}-${seed}` });
  assert.deepEqual(short_labels([item("a", { "method.rho": "0.1", "x.y": "1" }), item("a", { "method.rho": "1.0", "x.y": "1" })]), ["rho = 0.1", "rho = 1.0"]);
  assert.deepEqual(short_labels([item("a", { "method.rho": "0.1" }), item("b", { "method.mu": "2" })]), ["a", "b"]);
  assert.deepEqual(short_labels([item("a", {}, 0), item("a", {}, 1)]), ["seed 0", "seed 1"]);
  assert.deepEqual(short_labels([item("a", { "p.rate": "1", "q.rate": "1" }), item("a", { "p.rate": "2", "q.rate": "2" })]), ["p.rate = 1, q.rate = 1", "p.rate = 2, q.rate = 2"]);
});

test("a group is called by what its runs have in common, in the words of the field", () => {
  const runs = [run("a", "fedeq", { "method.name": '"fedeq"', "method.server_optimiser.name": '"adam"', "method.rho": "0.1" }, [0.1]), run("b", "fedavg", { "method.name": '"fedavg"', "method.rho": "0.2" }, [0.1])];
  const labels = (by) => lines_of(runs, by).map(({ label }) => label);
  assert.deepEqual(labels("method.name"), ["fedeq", "fedavg"]);
  assert.deepEqual(labels("method.rho"), ["rho = 0.1", "rho = 0.2"]);
  assert.deepEqual(labels("method.server_optimiser.name"), ["server_optimiser = adam", "server_optimiser = –"]);
});

/** The hue of a colour in degrees, by the usual formula. */
function hue(colour) {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  return (Math.atan2(Math.sqrt(3) * (green - blue), 2 * red - green - blue) * 180) / Math.PI;
}

test("lines of a method are its colour in shades and dashes, also where there is no other method", () => {
  const blue = { light: "#0047d6", dark: "#5aa9ff" };
  const orange = { light: "#c65300", dark: "#ff9a52" };
  const line = (method, colour) => ({ info: { method, colour } });
  for (const amount of [1, 2, 5, 15]) {
    for (const lines of [Array(amount).fill(line("fedeq", blue)), [line("fedavg", orange), ...Array(amount).fill(line("fedeq", blue))]]) {
      const drawn = strokes(lines);
      drawn.forEach(({ light, dark }, index) => {
        const own = lines[index].info.colour;
        assert.ok(Math.abs(hue(light) - hue(own.light)) < 4 && Math.abs(hue(dark) - hue(own.dark)) < 4, `${light} and ${dark} are no shades of ${own.light} and ${own.dark}`);
      });
      assert.deepEqual({ ...drawn[0] }, { ...lines[0].info.colour, dash: [], width: drawn[0].width }, "the first has the colour itself");
      assert.equal(new Set(drawn.map(({ light, dash }) => `${light} ${dash}`)).size, drawn.length, "no two are drawn alike");
    }
  }
});

test("several lines of a method have the shades and dashes that they have in figures", () => {
  for (const { what, method, light, settings, shades, dashes } of shared.shades) {
    const drawn = strokes(settings.map((one) => ({ info: { method, seed: 0, colour: { light, dark: light } }, members: [{ story: { settings: one } }] })));
    assert.deepEqual(drawn.map((stroke) => stroke.light), shades, what);
    assert.deepEqual(drawn.map(({ dash }) => dash.join(" ")), dashes, what);
  }
});

test("a method whose colour says so is drawn broader, also among many lines, where all are thin", () => {
  const line = (method, strong) => ({ info: { method, colour: { light: "#0047d6", dark: "#5aa9ff", strong } } });
  const widths = (others) => new Set(strokes([line("new", true), ...Array(others).fill(line("old", false))]).map(({ width }) => width));
  for (const others of [3, 300]) {
    const [strong, usual] = [...widths(others)];
    assert.ok(strong > usual, `${strong} and ${usual}`);
  }
  assert.ok([...widths(300)].every((width) => width <= 1), "broader lines take a canvas many times as long");
});

/** How light a colour is, from 0 to 1, as the guidelines for contrast define it. */
function luminance(colour) {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16) / 255).map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

test("the numbers beside the axes of charts can be read, by day and by night", () => {
  for (const is_dark of [false, true]) {
    night.matches = is_dark;
    const { paper, ink, soft } = theme();
    for (const letters of [ink, soft]) {
      const [low, high] = [luminance(letters), luminance(paper)].sort((a, b) => a - b);
      assert.ok((high + 0.05) / (low + 0.05) >= 4.5, `${letters} on ${paper}`);
    }
  }
  night.matches = false;
});

test("unfinished runs are not put together with finished ones, and a line says what it stands for", () => {
  const [line] = lines_of([run("a", "x", {}, [0.1, 0.5]), run("b", "x", {}, [0.9], "killed", 1), run("c", "x", {}, [0.2, 0.7], "finished", 2)], SEEDS);
  assert.deepEqual(line.pooled.map(({ row }) => row.run), ["a", "c"]);
  assert.deepEqual([line.members.length, line.is_finished, line.round], [3, true, 2]);
  const [unfinished] = lines_of([run("a", "x", {}, [0.1, 0.5], "running"), run("b", "x", {}, [0.9], "killed", 1)], SEEDS);
  assert.deepEqual([unfinished.is_finished, unfinished.round], [false, 1], "as far as all came");
  assert.equal(lines_of([run("a", "x", {}, [0.1]), run("b", "x", {}, [0.1])], EACH).length, 2);
  assert.equal(full_name(line), "x (2 of 3 runs)");
  assert.equal(full_name(unfinished), "x (mean of 2 runs, unfinished, after 1 round)");
  const alone = (state, accuracies) => full_name(lines_of([run("a", "x", {}, accuracies, state)], EACH)[0]);
  assert.equal(alone("killed", [0.1, 0.2]), "x (unfinished, after 2 rounds)");
  assert.equal(alone("finished", [0.1, 0.2]), "x");
  assert.equal(alone("running", []), "x (unfinished, not evaluated yet)");
});

test("a band is one standard deviation and stays in the range of what it shows", () => {
  const [line] = lines_of([run("a", "x", {}, [0.9]), run("b", "x", {}, [1.0], "finished", 1)], SEEDS);
  const [point] = curve_of(line, LOCAL, ABSCISSAE.round, { floor: 0, ceiling: 1 }, 0);
  const deviation = Math.sqrt(((0.05) ** 2 + (0.05) ** 2) / 1);
  assert.ok(Math.abs(point.y - 0.95) < 1e-12 && Math.abs(point.low - (0.95 - deviation)) < 1e-12, JSON.stringify(point));
  assert.equal(point.high, 1, "never above the whole");
});

test("curves are drawn over rounds, bytes and seconds", () => {
  const [line] = lines_of([run("a", "x", {}, [0.1, 0.2])], EACH);
  assert.deepEqual(curve_of(line, LOCAL, ABSCISSAE.bytes, {}, 0), [{ x: 10, y: 0.1 }, { x: 20, y: 0.2 }]);
  assert.deepEqual(curve_of(line, LOCAL, ABSCISSAE.time, {}, 0).map(({ x }) => x), [1, 2]);
});

test("smoothing keeps what is constant and is not drawn towards zero", () => {
  const points = [1, 1, 1].map((y, x) => ({ x, y, deviation: 0 }));
  assert.ok(smoothed(points, 0.9).every(({ y }) => Math.abs(y - 1) < 1e-12));
  const [first, second] = smoothed([{ x: 0, y: 0 }, { x: 1, y: 1 }], 0.5);
  // (0.25 * 0 + 0.5 * 1) / 0.75
  assert.ok(first.y === 0 && Math.abs(second.y - 2 / 3) < 1e-12);
});

test("columns that begin late are joined to those before them", () => {
  assert.deepEqual(joined_columns({ round: [1, 2], a: [5, 6] }, { round: [3], b: [7] }), { round: [1, 2, 3], a: [5, 6, null], b: [null, null, 7] });
  assert.equal(value_at({ round: [1, 5, 9], a: [10, 50, 90] }, 7, (at) => at("a")), 50);
});

test("scores that no client reports are said to be missing, and scatter is that of a sample", () => {
  assert.deepEqual([score(null, 3), score(null, null), score(0, 3)], ["not reported", "–", "0.0\u00a0%"]);
  assert.equal(scattered(sample([0.8, 0.9]), percent), "85.0 ±\u00a07.1\u00a0%");
  assert.equal(sample([null, undefined, NaN]), null);
});

const ACCURACY = { of: (row) => row.local.accuracy, at: (story, round) => value_at(story.evaluations, round, (at) => at("local")) };

test("finished runs of other lengths are put together as far as all of them came", () => {
  const cases = [
    [[[0.1, 0.4, 0.9]], 3, 0.9],
    [[[0.1, 0.4, 0.9], [0.2, 0.6]], 2, 0.5],
    [[[0.2, 0.6], [0.1, 0.4, 0.9]], 2, 0.5],
    [[[0.3], [0.2, 0.6], [0.1, 0.4, 0.9]], 1, 0.2],
  ];
  for (const [all, round, mean] of cases) {
    const [line] = lines_of(all.map((accuracies, seed) => run(`r${seed}`, "x", {}, accuracies, "finished", seed)), SEEDS);
    assert.deepEqual([line.round, line.pooled.length], [round, all.length]);
    assert.ok(Math.abs(at_the_end(line, ACCURACY).mean - mean) < 1e-12, `${at_the_end(line, ACCURACY).mean} after ${round}`);
  }
  // A run that was not evaluated there is left out.
  const gap = run("gap", "x", {}, [0.1, 0.4, 0.9], "finished", 1);
  for (const journal of ["round", "local"]) gap.story.evaluations[journal] = gap.story.evaluations[journal].filter((_, index) => index !== 1);
  const [line] = lines_of([run("a", "x", {}, [0.2, 0.6]), gap], SEEDS);
  assert.deepEqual([line.round, full_name(line)], [2, "x (1 of 2 runs)"]);
});

test("what a run ended with comes from its summary, what it was before from its journal", () => {
  const [line] = lines_of([run("a", "x", {}, [0.2, 0.6])], EACH);
  line.pooled[0].row.local.accuracy = 0.7;
  assert.equal(at_the_end(line, ACCURACY).mean, 0.7, "after the last step of a method");
  assert.equal(at_the_end({ ...line, round: 1 }, ACCURACY).mean, 0.2);
  const timings = { round: [1, 2, 3], spent: [1, 2, 4], evaluate: [null, 5, 7] };
  assert.deepEqual([seconds_until({ timings }, 2), seconds_until({ timings }, 3), seconds_until({ timings: { ...timings, round: [1, 2, 9] } }, 9)], [7, 16, null]);
});

/** Lines of some methods: a list of `[seed, accuracy]` each, with settings of the data. */
function lines_with(all, data = () => ({})) {
  return lines_of(all.flatMap((values, place) => values.map(([seed, accuracy]) => run(`m${place}-${seed}`, `m${place}`, data(place), [accuracy], "finished", seed))), SEEDS);
}

test("differences are paired by seed where both lines have the same seeds and data", () => {
  // Seeds scatter by ten points, the difference by one: 2, 3 and 4 points, whose standard error is 1 / sqrt(3).
  const [first, line] = lines_with([[[0, 0.6], [1, 0.7], [2, 0.8]], [[0, 0.62], [1, 0.73], [2, 0.84]]]);
  const { mean, error, pairs } = difference_between(first, line, ACCURACY);
  assert.ok(Math.abs(mean - 0.03) < 1e-12 && Math.abs(error - 0.01 / Math.sqrt(3)) < 1e-12 && pairs === 3, JSON.stringify({ mean, error, pairs }));
  assert.equal(difference_text(first, line, ACCURACY), "+3.0\u00a0±\u00a00.6");
  assert.equal(difference_text(first, first, ACCURACY), "");
});

test("where seeds or data differ, differences are said to be unpaired", () => {
  const seeds = [[[0, 0.6], [1, 0.8]], [[2, 0.7], [3, 0.8]]];
  const [first, other] = lines_with(seeds);
  // Each has its own mean, and the variances of both means add up: (0.02 + 0.005) / 2.
  const { mean, error, pairs } = difference_between(first, other, ACCURACY);
  assert.ok(Math.abs(mean - 0.05) < 1e-12 && Math.abs(error - Math.sqrt(0.0125)) < 1e-12 && pairs === 0);
  assert.equal(difference_text(first, other, ACCURACY), "+5.0\u00a0±\u00a011.2 (unpaired)");
  const same = [[[0, 0.6], [1, 0.8]], [[0, 0.7], [1, 0.8]]];
  assert.match(difference_text(...lines_with(same, (place) => ({ "data.partition.clients": String(place) })), ACCURACY), /unpaired/);
  assert.equal(difference_text(...lines_with([[[0, 0.5]], [[1, 0.4]]]), ACCURACY), "−10.0 (unpaired)");
  assert.equal(difference_text(...lines_with([[[0, 0.5]], [[0, 0.4]]]), ACCURACY), "−10.0", "one seed, the same");
  const [more, fewer] = lines_with([[[0, 0.5], [1, 0.6], [2, 0.9]], [[0, 0.6], [1, 0.7]]]);
  assert.equal(difference_text(more, fewer, ACCURACY), "+10.0\u00a0±\u00a00.0 (2 pairs)");
});

test("a difference of lines that end at other rounds says so, and unfinished ones are not compared", () => {
  const [first] = lines_of([run("a", "x", {}, [0.2, 0.6])], EACH);
  const [short] = lines_of([run("b", "y", {}, [0.5])], EACH);
  assert.equal(difference_text(first, short, ACCURACY), "−10.0 (round 1 against 2)");
  const [killed] = lines_of([run("c", "y", {}, [0.5, 0.6], "killed")], EACH);
  assert.equal(difference_text(first, killed, ACCURACY), "not comparable: unfinished");
});

test("the same clients are those of one seed, but for owners of data, who are the same under all", () => {
  const methods = [[[0, 0.6], [1, 0.7]], [[1, 0.6], [2, 0.7]], [[5, 0.1]]];
  const drawn = same_clients(lines_with(methods), null);
  assert.deepEqual([drawn.seed, drawn.seeds, drawn.apart.map(({ label }) => label)], [1, [0, 1, 2, 5], ["m2"]], "the seed that most lines have");
  assert.deepEqual(drawn.lines.map(({ runs }) => runs.map(({ row }) => row.run)), [["m0-1"], ["m1-1"]]);
  assert.deepEqual(same_clients(lines_with(methods), 5).lines.map(({ line }) => line.label), ["m2"], "or the one that is asked for");
  const natural = (more) => () => ({ "data.partition.rule": '"natural"', "data.partition.pick": '"first"', ...more });
  const owned = same_clients(lines_with(methods, natural({})), null);
  assert.deepEqual([owned.seed, owned.seeds, owned.lines.map(({ runs }) => runs.length)], [null, [], [2, 2, 1]]);
  for (const draw of [{ "data.partition.pick": '"random"' }, { "data.limit.train": "50" }, { "data.unseen.count": "3" }]) assert.equal(same_clients(lines_with(methods, natural(draw)), null).seed, 1, JSON.stringify(draw));
  const elsewhere = same_clients(lines_with([[[0, 0.1]], [[0, 0.2]]], (place) => ({ "data.partition.alpha": String(place) })), null);
  assert.deepEqual(elsewhere.apart.map(({ label }) => label), ["m1"], "another division has other clients");
});

test("a filter's `key=value` matches whole values, and words match parts", () => {
  const entry = (seed, rho) => ({ row: { run: `run-${seed}`, state: "finished", info: info("fedeq", { seed, title: "FeDEQ" }) }, story: { settings: { "method.name": '"fedeq"', "method.rho": rho, "data.source.seed": "7", "data.source.resize": "[8, 8]" } } });
  const found = (filter) => [entry(1, "0.1"), entry(10, "0.15"), entry(19, "1.0")].filter((one) => fits(filter, one)).map(({ row }) => row.info.seed);
  assert.deepEqual(found("seed=1"), [1]);
  assert.deepEqual(found("rho=0.1"), [1]);
  assert.deepEqual(found("method.rho=0.15"), [10]);
  assert.deepEqual(found("rho=1"), [19], "one is one");
  assert.deepEqual(found("ho=0.1"), [], "a part of a key is none");
  assert.deepEqual(found("method=fedeq seed=10"), [10]);
  assert.deepEqual(found("seed=7"), [], "the data's own seed has a longer path");
  assert.deepEqual(found("source.seed=7").length, 3);
  assert.deepEqual(found("resize=[8,8]").length, 3);
  assert.deepEqual(found("RUN-1"), [1, 10, 19]);
  assert.deepEqual(found("rho="), [1, 10, 19], "while somebody types");
});

test("what was chosen is in the address, and comes back from it", () => {
  const board = { filter: "rho=0.1 a&b", sort: { key: "setting method.rho", down: true }, group: "method.rho", columns: ["method.rho", "plan.rounds"], hidden: new Set(["a b", "c&d=e"]), abscissa: "bytes", log_x: true, log_y: false, smoothing: 0.3 };
  assert.deepEqual(choices_of(query_of(board)), board);
  const nothing = choices_of("");
  assert.equal(query_of(nothing), "");
  assert.deepEqual(choices_of("over=miles&smooth=7&sort="), nothing, "what makes no sense is not there");
  assert.deepEqual(parts_of(`#/compare/a%3Fb/c?${query_of(board)}`), { path: "compare/a%3Fb/c", query: query_of(board) });
  assert.deepEqual([parts_of(""), parts_of("#/run/a")], [{ path: "", query: null }, { path: "run/a", query: null }]);
});

test("cells that a spreadsheet would take for formulas do not begin like one", () => {
  for (const [text, cell] of [["=1+1", "'=1+1"], ["+a", "'+a"], ["-a", "'-a"], ["@a", "'@a"], ["a=1", "a=1"], ['=a,"b"', '"\'=a,""b"""'], ["a\nb", '"a\nb"'], ["", ""]]) assert.equal(csv_cell(text), cell);
  assert.deepEqual([csv_cell(-1.5), csv_cell(1e-9)], ["-1.5", "1e-9"], "a number is a number");
});

test("beside a logarithmic axis stand powers of ten, or ones, twos and fives where there are few", () => {
  assert.deepEqual(powers(0.01, 1000, 8), [0.01, 0.1, 1, 10, 100, 1000]);
  assert.deepEqual(powers(1, 20, 5), [1, 2, 5, 10, 20]);
  assert.deepEqual(powers(1e-9, 1, 5).length, 5);
});

test("shades of a method are in the order of the setting that varies", () => {
  const blue = { light: "#0047d6", dark: "#5aa9ff" };
  const rhos = Array.from({ length: 50 }, (_, index) => ((index * 7) % 50) + 1);
  const lines = rhos.map((rho) => ({ info: { ...info("fedeq"), colour: blue }, members: [{ story: { settings: { "method.rho": String(rho), "method.name": '"fedeq"' } } }] }));
  const light = (colour) => [1, 3, 5].reduce((sum, at) => sum + parseInt(colour.slice(at, at + 2), 16), 0);
  const drawn = strokes(lines).map((stroke, index) => ({ rho: rhos[index], shade: light(stroke.light), dash: stroke.dash })).sort((a, b) => a.rho - b.rho);
  assert.ok(drawn.every(({ shade, dash }, index) => dash.length === 0 && (index === 0 || shade < drawn[index - 1].shade)), "the larger, the deeper");
  assert.equal(shades_text(lines), "Shades: rho from 1 (light) to 50 (deep).");
  const seeds = [0, 1, 2].map((seed) => ({ info: { ...info("fedeq", { seed }), colour: blue }, members: [{ story: { settings: {} } }] }));
  assert.equal(shades_text(seeds), "Shades: seed from 0 (light) to 2 (deep).");
  assert.equal(shades_text([lines[0]]), "");
});
