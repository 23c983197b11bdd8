// A report: the same page from disk, with its data inside and without a server.
import assert from "node:assert/strict";
import { cpSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { Visitor, Workshop, until } from "./support.js";

/** Every cell of every matrix is as wide as it is high, and can be seen. */
async function squares(page) {
  const cells = await page.locator("table.confusion tbody td").evaluateAll((all) => all.map((cell) => cell.getBoundingClientRect()).map(({ width, height }) => [width, height]));
  assert.ok(cells.length > 0);
  for (const [width, height] of cells) assert.ok(Math.abs(width - height) < 1 && width > 4, `${width} by ${height}`);
  const over = await page.locator("table.confusion").evaluateAll((all) => all.map((table) => table.parentElement.scrollWidth - table.parentElement.clientWidth));
  assert.ok(over.every((pixels) => pixels <= 0), `matrices are ${over} pixels too wide`);
}

const workshop = new Workshop();
let visitor;
let path;

before(async () => {
  for (const method of ["fedeq", "fedavg", "fedrep", "local"]) {
    await Promise.all([0, 1].map((seed) => workshop.finished(`${method}-${seed}`, "plan.rounds=8", `method=${method}`, `seed=${seed}`)));
  }
  // Unfinished: as if it had been killed after its fifth round.
  const killed = "fedeq <script>alert(1)<b>";
  await workshop.finished(killed, "plan.rounds=8", "seed=2");
  rmSync(workshop.path(killed, "summary.json"));
  writeFileSync(workshop.path(killed, "status.json"), '{"state": "running", "pid": 1}');
  for (const journal of ["rounds.jsonl", "evaluations.jsonl", "timings.jsonl"]) {
    const lines = readFileSync(workshop.path(killed, journal), "utf8").split("\n").slice(0, 5);
    writeFileSync(workshop.path(killed, journal), `${lines.join("\n")}\n`);
  }
  // Nobody tells their scores.
  cpSync(workshop.path("local-0"), workshop.path("silent"), { recursive: true });
  rmSync(workshop.path("silent", "checkpoints"), { recursive: true });
  const experiment = readFileSync(workshop.path("silent", "experiment.toml"), "utf8");
  writeFileSync(workshop.path("silent", "experiment.toml"), experiment.replace(/^seed = \d+/m, "seed = 7").replace(/^batch_size = \d+/m, "batch_size = 9"));
  const mute = (quality) => quality && Object.assign(quality, { mean: 0, weighted: 0, worst_decile: 0, clients: quality.clients.map(() => null) });
  const silenced = (evaluation) => (mute(evaluation.local), mute(evaluation.shared), evaluation);
  const evaluations = readFileSync(workshop.path("silent", "evaluations.jsonl"), "utf8").trim().split("\n").map((line) => JSON.stringify(silenced(JSON.parse(line))));
  writeFileSync(workshop.path("silent", "evaluations.jsonl"), `${evaluations.join("\n")}\n`);
  const summary = JSON.parse(readFileSync(workshop.path("silent", "summary.json"), "utf8"));
  silenced(summary.evaluation);
  writeFileSync(workshop.path("silent", "summary.json"), JSON.stringify(summary));
  path = await workshop.report("report.html", "runs");
  visitor = await Visitor.arrive(`file://${path}`);
  visitor.address = `file://${path}`;
});

after(async () => {
  await visitor?.browser.close();
  await workshop.close();
});

test("it opens from disk with every part and a table of contents", async () => {
  await visitor.chart("Accuracy").waitFor();
  const parts = await visitor.page.locator(".contents a").allTextContents();
  for (const part of ["Summary", "Results side by side", "Curves", "Clients", "Time and memory", "Settings that differ", "Runs", "Confusion matrices", "How to reproduce it"]) assert.ok(parts.includes(part), `${part} is not in ${parts}`);
  await visitor.page.locator(".contents a", { hasText: "Confusion matrices" }).click();
  await until("it is in sight", () => visitor.page.locator("#confusion").evaluate((node) => node.getBoundingClientRect().top < innerHeight));
  await visitor.page.evaluate(() => scrollTo(0, 0));
  await visitor.picture("report");
});

test("unfinished runs are marked and put together with nobody, and a score that no client reports is said to be missing", async () => {
  const results = visitor.page.locator("section", { has: visitor.page.locator("#results") }).locator("tbody tr");
  await until("the lines", async () => (await results.count()) === 5);
  const rows = await results.allTextContents();
  assert.ok(rows.some((text) => text.includes("FeDEQ (2 of 3 runs)")), String(rows));
  // Tables that were made with the report and those of the page call lines by the same names.
  const called = (await results.locator(".named").allTextContents()).map((text) => text.trim());
  const summary = visitor.page.locator("section", { has: visitor.page.locator("#summary") });
  assert.deepEqual((await summary.locator("tbody th").allTextContents()).sort(), called.sort());
  assert.ok(rows.some((text) => /Local, batch_size = 9.*not reported/.test(text)), String(rows));
  assert.equal(await visitor.page.locator('tr[data-run="silent"] td[data-label="Accuracy, local"]').textContent(), "not reported");
  assert.match(await visitor.page.getByRole("note").textContent(), /was killed before its end: 5 of 8 rounds are over/);
  assert.match(await visitor.page.locator('tr[data-run^="fedeq <"]').textContent(), /killed/);
});

test("wherever an unfinished line is named, it is said to be unfinished: in words, files, tables and headings", async () => {
  const { page } = visitor;
  await page.getByLabel("Group by").selectOption("each run");
  const name = /FeDEQ, seed 2 \(unfinished, after 5 rounds\)/;
  await until("a curve a run", async () => (await visitor.curves("Accuracy")) === 9);
  const saved = async (ending) => {
    const [download] = await Promise.all([page.waitForEvent("download"), visitor.chart("Accuracy").getByRole("button", { name: `as ${ending}` }).click()]);
    return readFileSync(await download.path(), "utf8");
  };
  assert.match((await saved("CSV")).split("\n")[0], name);
  assert.match(await saved("SVG"), name);
  const part = (id) => page.locator("section", { has: page.locator(`#${id}`) });
  for (const id of ["cost", "differences", "results", "curves"]) assert.match(await part(id).textContent(), name, id);
  await page.getByLabel("Find").fill("seed=2");
  await until("it alone", async () => (await visitor.curves("Accuracy")) === 1);
  const alone = /FeDEQ \(unfinished, after 5 rounds\)/;
  assert.match(await visitor.chart("Accuracy").locator(".plot").getAttribute("aria-label"), alone);
  assert.match(await saved("SVG"), alone, "a picture of one line names it, too");
  await visitor.chart("Accuracy").locator(".plot").focus();
  await page.keyboard.press("End");
  await until("the readout", async () => alone.test(await visitor.chart("Accuracy").locator(".readout").textContent()));
  await visitor.chart("Accuracy").locator("summary").click();
  assert.match(await visitor.chart("Accuracy").locator("thead").textContent(), alone, "the numbers");
  assert.match(await part("clients").locator("thead").first().textContent(), alone, "its clients");
  await page.goto(`${visitor.address}#/?`);
  await until("lines again", async () => (await visitor.curves("Accuracy")) === 4);
});

test("one colour a method, and FeDEQ's line is the strongest", async () => {
  const width = (name) => visitor.page.locator(".legend.shared li", { hasText: name }).first().locator("line").getAttribute("stroke-width");
  assert.ok(Number(await width("FeDEQ")) > Number(await width("FedAvg")));
});

test("confusion matrices are square and say what is true and what predicted", async () => {
  const matrix = visitor.page.locator("table.confusion").first();
  const [rows, columns] = [await matrix.locator("tbody tr").count(), await matrix.locator("thead th").count()];
  assert.ok(rows > 0 && rows === columns, `${rows} by ${columns}`);
  assert.match(await matrix.locator("caption").textContent(), /true.*predicted/);
  await squares(visitor.page);
});

test("the same clients stand side by side for each line, the least accurate first, and how accuracy is spread over them is drawn", async () => {
  const section = visitor.page.locator("section", { has: visitor.page.locator("#clients") });
  const table = section.locator("table");
  await table.waitFor();
  const lines = (await visitor.page.locator(".legend.shared li").allTextContents()).map((text) => text.replace(/ \(.*| unfinished.*/, "").trim());
  const heads = await table.locator("thead th").allTextContents();
  assert.deepEqual(heads.slice(0, 3), ["Client", "Most frequent labels (samples)", "Train"]);
  const shown = heads.slice(3);
  // One run of Local has another batch size and seed: that tells the two lines apart, and it has other clients.
  const names = ["FeDEQ", "FedAvg", "FedRep", "Local, batch_size = 10"];
  assert.deepEqual([...shown].sort(), [...names].sort());
  await section.getByText("Runs of seed 0 alone: the seed also draws which samples each client has").waitFor();
  await section.getByText("1 line without a run of these clients is not shown: Local, batch_size = 9.").waitFor();
  assert.ok(names.every((name) => shown.includes(name)) && shown.every((name) => lines.includes(name)), `${shown} of ${lines}`);
  // What the summaries say, read without the page. Under another seed another client has that name.
  const accuracies = (seed) => ["fedeq", "fedavg", "fedrep", "local"].map((method) => JSON.parse(readFileSync(workshop.path(`${method}-${seed}`, "summary.json"), "utf8")).evaluation.local.clients);
  const tallies = (seed) => JSON.parse(readFileSync(workshop.path(`fedeq-${seed}`, "clients.json"), "utf8"));
  assert.notDeepEqual(tallies(0), tallies(1));
  const of_methods = accuracies(0);
  await section.getByRole("button", { name: "Show all clients" }).click();
  await until("all clients", async () => (await table.locator("tbody tr").count()) === of_methods[0].length);
  const cells = () => table.locator("tbody tr").evaluateAll((all) => all.map((row) => [...row.cells].map((cell) => cell.textContent.replaceAll("\u00a0", " "))));
  const rows = await cells();
  const places = names.map((name) => heads.indexOf(name));
  for (const row of rows) {
    const client = Number(row[0].match(/\d+/)[0]);
    assert.deepEqual(places.map((place) => row[place]), of_methods.map((one) => `${(100 * one[client]).toFixed(1)} %`), `client ${client}`);
    assert.match(row[1], /\(\d+\)/, "what it holds");
  }
  const mean = (row) => { const told = row.slice(3).filter((text) => text !== "–").map(parseFloat); return told.reduce((sum, value) => sum + value, 0) / told.length; };
  assert.ok(rows.every((row, index) => index === 0 || mean(row) >= mean(rows[index - 1]) - 0.1), "the least accurate first");
  const spread = visitor.chart("Accuracy of clients, sorted");
  assert.equal(Number(await spread.getAttribute("data-curves")), shown.length);
  assert.equal(Number(await spread.getAttribute("data-points")), of_methods[0].length, "a point a client");
  // The other seed, with its own clients.
  await section.getByLabel("Clients of seed").selectOption("1");
  await section.getByText("Runs of seed 1 alone").waitFor();
  const of_seed_1 = accuracies(1);
  await until("their accuracies", async () => (await cells()).every((row) => String(places.map((place) => row[place])) === String(of_seed_1.map((one) => `${(100 * one[Number(row[0].match(/\d+/)[0])]).toFixed(1)} %`))));
  const held = (all) => all.map((row) => row[1]).sort();
  assert.notDeepEqual(held(await cells()), held(rows), "and what they hold");
  await section.getByLabel("Clients of seed").selectOption("0");
  await until("the first again", async () => String(await cells()) === String(rows));
  const before = rows.map((row) => row.join());
  await section.getByLabel("Accuracy by").selectOption("shared");
  await until("the other model", async () => String(await table.locator("tbody tr").evaluateAll((all) => all.map((row) => [...row.cells].map((cell) => cell.textContent).join()))) !== String(before));
});

test("no table is wider than its page, on any screen, and everything that can be used has a name", async () => {
  const views = [["", "table.runs"], ["#/compare/fedeq-0/fedavg-0", "#differences"], ["#/run/fedeq-0", "#clients"]];
  for (const [view, landmark] of views) {
    await visitor.page.goto(`${visitor.address}${view}`);
    await visitor.page.locator(landmark).first().waitFor();
    for (const width of [1200, 1000, 700, 360]) {
      assert.deepEqual(await visitor.wide_tables(width), [], view);
      assert.ok((await visitor.overhang()) <= 0, `${view} is ${await visitor.overhang()} pixels too wide at ${width}`);
      await visitor.picture(`report-${view.split("/")[1] ?? "whole"}-${width}`);
    }
    assert.deepEqual(await visitor.nameless(), [], view);
    for (const figure of await visitor.page.locator("figure.chart:visible .plot").all()) assert.match(await figure.getAttribute("aria-label"), /: .+ (at round|after|at clients up to) .+\. Arrow keys read/);
  }
  await visitor.page.setViewportSize({ width: 1200, height: 900 });
  await visitor.page.goto(`${visitor.address}#/`);
  await visitor.chart("Accuracy").waitFor();
});

test("owners of data are the same clients under every seed, and the cells of matrices are square also where classes have long names", async () => {
  const names = ["Quercus robur subsp. pedunculiflora", "Ulmus", "Fraxinus excelsior"];
  const rows = Array.from({ length: 240 }, (_, index) => `garden-${index % 4},${names[index % 3]},${index % 3},${(index * 7) % 5}`);
  writeFileSync(join(workshop.folder, "leaves.csv"), `client,label,height,width\n${rows.join("\n")}\n`);
  const leaves = (seed) => workshop.finished(`leaves-${seed}`, "data=csv", "data.folder=leaves.csv", "model=mlp", "plan.sampling.fraction=1", "plan.rounds=2", `seed=${seed}`);
  await Promise.all([0, 1].map(leaves));
  const page = await visitor.browser.newPage({ viewport: { width: 1200, height: 900 } });
  await page.goto(`file://${await workshop.report("leaves.html", "runs/leaves-0", "runs/leaves-1")}`);
  await page.locator("table.confusion tbody td").first().waitFor();
  assert.deepEqual(await page.locator("table.confusion thead th").allTextContents(), [...names].sort());
  for (const width of [1200, 360]) {
    await page.setViewportSize({ width, height: 900 });
    await squares(page);
  }
  // These clients are owners: the same under both seeds, whose means are shown.
  await page.getByText("Means over seeds: the owners of the data are the clients").waitFor();
  const both = [0, 1].map((seed) => JSON.parse(readFileSync(workshop.path(`leaves-${seed}`, "summary.json"), "utf8")).evaluation.local.clients);
  const wanted = both[0].map((_, client) => `${(50 * (both[0][client] + both[1][client])).toFixed(1)} %`);
  const seen = await page.locator("section", { has: page.locator("#clients") }).locator("tbody tr").evaluateAll((rows) => rows.map((row) => [row.cells[0].textContent, row.cells[3].textContent.replace("\u00a0", " ")]));
  assert.deepEqual(seen.sort(), wanted.map((accuracy, client) => [`garden-${client}`, accuracy]));
  await page.close();
});

test("a run of it has a page of its own, and the way back", async () => {
  await visitor.page.locator("table.runs").getByRole("link", { name: "fedeq-0" }).click();
  await until("its curves", async () => (await visitor.points("Accuracy")) === 8);
  assert.equal(await visitor.page.getByRole("button", { name: "Stop" }).count(), 0);
  await visitor.page.getByText("The experiment, with all settings").click();
  await until("its settings", async () => (await visitor.page.locator(".settings pre").textContent()).includes("[plan]"));
  await visitor.page.getByRole("link", { name: "Report" }).click();
  await visitor.at();
});

test("single clients have pages in it, with their history and their confusion matrix", async () => {
  await visitor.page.locator("table.runs").getByRole("link", { name: "fedeq-0" }).click();
  const clients = visitor.page.locator("section", { has: visitor.page.getByRole("heading", { name: "Clients", exact: true }) });
  await clients.getByRole("link").first().click();
  await visitor.page.getByText("Samples by label").waitFor();
  await until("its accuracy", async () => (await visitor.points("Accuracy")) === 8);
  const matrix = visitor.page.locator("table.confusion");
  await matrix.waitFor();
  assert.equal(await matrix.locator("tbody tr").count(), await matrix.locator("thead th").count());
  const here = await visitor.page.getByRole("heading", { level: 1 }).textContent();
  await visitor.page.locator("nav.others a").first().click();
  await until("another client", async () => (await visitor.page.getByRole("heading", { level: 1 }).textContent()) !== here);
  await visitor.picture("report-client");
  await visitor.page.getByRole("link", { name: "Report" }).click();
  await visitor.at();
});

test("two runs of it are compared, with their matrices", async () => {
  await visitor.page.goto(`${visitor.address}#/compare/fedeq-0/fedavg-0`);
  await visitor.chart("Accuracy").scrollIntoViewIfNeeded();
  await Visitor.drawn(visitor.page, "Accuracy");
  await until("two matrices", async () => (await visitor.page.locator("table.confusion").count()) === 2);
  await visitor.page.getByRole("link", { name: "Report" }).click();
  await visitor.at();
});

test("values are read under the pointer, and dragging zooms, without a server", async () => {
  await visitor.page.setViewportSize({ width: 1200, height: 900 });
  await visitor.read_and_zoom("Accuracy", /^round [45]: .*%/);
  await visitor.chart("Accuracy").locator(".u-over").dblclick();
  await until("the whole", async () => (await visitor.chart("Accuracy").getAttribute("data-zoomed")) === "false");
});

test("all words of it can be read, by day and by night", async () => {
  for (const colorScheme of ["light", "dark"]) {
    await visitor.page.emulateMedia({ colorScheme });
    assert.deepEqual(await visitor.pale(), [], colorScheme);
  }
  await visitor.page.emulateMedia({ colorScheme: "light" });
});

test("it is printed with pictures that are drawn for paper, no wider than it", async () => {
  await visitor.chart("Accuracy").waitFor();
  await visitor.page.emulateMedia({ media: "print" });
  await visitor.page.evaluate(() => dispatchEvent(new Event("beforeprint")));
  assert.ok((await visitor.page.locator(".printed svg path").count()) > 8);
  const settings = visitor.page.locator("section", { has: visitor.page.locator("#differences") });
  assert.match(await settings.textContent(), /settings that only some of these lines have.*method\.rho/s, "what is folded up is unfolded on paper");
  await visitor.page.setViewportSize({ width: 700, height: 990 });
  assert.ok((await visitor.overhang()) <= 0, `${await visitor.overhang()} pixels too wide`);
  await visitor.picture("printed");
  await visitor.page.evaluate(() => dispatchEvent(new Event("afterprint")));
  await visitor.page.emulateMedia({ media: "screen" });
  const pdf = await visitor.page.pdf({ format: "A4" });
  assert.equal(pdf.subarray(0, 4).toString(), "%PDF");
});

test("on a phone and in the dark it is no wider than the screen", async () => {
  await visitor.page.setViewportSize({ width: 360, height: 740 });
  await visitor.page.emulateMedia({ colorScheme: "dark" });
  await new Promise((next) => setTimeout(next, 500));
  assert.ok((await visitor.overhang()) <= 0, `${await visitor.overhang()} pixels too wide`);
  await visitor.picture("report-phone");
});

test("nothing went wrong, nothing was loaded, and no name became a script", async () => {
  assert.deepEqual(visitor.errors, []);
  assert.deepEqual(visitor.requests.filter((url) => !url.startsWith("file:") && !url.startsWith("blob:") && !url.startsWith("data:")), []);
});
