// What the page computes, without a browser: labels, groups, bands, smoothing.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

/** The page's modules are no package, so they are read as what they are from a folder that says so. */
const folder = mkdtempSync(join(tmpdir(), "fedeq-logic-"));
const assets = resolve(dirname(fileURLToPath(import.meta.url)), "../crates/viewer/assets");
writeFileSync(join(folder, "package.json"), '{ "type": "module" }');
for (const module of ["colour.js", "columns.js", "format.js", "labels.js", "lines.js", "scale.js"]) writeFileSync(join(folder, module), readFileSync(join(assets, module)));
globalThis.matchMedia = () => ({ matches: false });
const { strokes } = await import(join(folder, "colour.js"));
const { short_labels } = await import(join(folder, "labels.js"));
const { ABSCISSAE, EACH, SEEDS, curve_of, lines_of, sample, smoothed } = await import(join(folder, "lines.js"));
const { joined_columns, value_at } = await import(join(folder, "columns.js"));
const { score, scattered, percent } = await import(join(folder, "format.js"));

const info = (method, more = {}) => ({ method, title: method, model: "m", data: "d", seed: 0, ...more });

/** A run with the accuracies of its evaluations. */
function run(name, method, settings, accuracies, state = "finished", seed = 0) {
  const rounds = accuracies.map((_, index) => index + 1);
  const story = { settings, rounds: { round: rounds, up: rounds.map((round) => 10 * round), down: rounds.map(() => 0) }, evaluations: { round: rounds, local: accuracies }, timings: { round: rounds, spent: rounds } };
  return { row: { run: name, state, evaluated: rounds.at(-1), info: info(method, { seed }), local: { accuracy: accuracies.at(-1) } }, story };
}

const LOCAL = { of: (story) => story.evaluations.round.map((round, index) => [round, story.evaluations.local[index]]).filter(([, y]) => y != null) };

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

test("unfinished runs are not put together with finished ones, nor runs after different rounds", () => {
  const [line] = lines_of([run("a", "x", {}, [0.1, 0.5]), run("b", "x", {}, [0.9], "killed", 1), run("c", "x", {}, [0.2, 0.7], "finished", 2)], SEEDS);
  assert.deepEqual(line.pooled.map(({ row }) => row.run), ["a", "c"]);
  assert.deepEqual([line.members.length, line.is_finished, line.round], [3, true, 2]);
  const [unfinished] = lines_of([run("a", "x", {}, [0.1, 0.5], "running"), run("b", "x", {}, [0.9], "killed", 1)], SEEDS);
  assert.deepEqual([unfinished.is_finished, unfinished.round], [false, 1], "as far as all came");
  assert.equal(lines_of([run("a", "x", {}, [0.1]), run("b", "x", {}, [0.1])], EACH).length, 2);
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

test("scores that nobody tells are not told, and scatter is that of a sample", () => {
  assert.deepEqual([score(null, 3), score(null, null), score(0, 3)], ["not told", "–", "0.0 %"]);
  assert.equal(scattered(sample([0.8, 0.9]), percent), "85.0 ± 7.1 %");
  assert.equal(sample([null, undefined, NaN]), null);
});
