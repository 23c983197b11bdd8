// A report: the same page from disk, with its data inside and without a server.
import assert from "node:assert/strict";
import { cpSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { Visitor, Workshop, until } from "./support.js";

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
  for (const part of ["Summary", "Results side by side", "Curves", "Clients", "Time and memory", "Settings that differ", "Runs", "Confusion matrices", "How to do it again"]) assert.ok(parts.includes(part), `${part} is not in ${parts}`);
  await visitor.page.locator(".contents a", { hasText: "Confusion matrices" }).click();
  await until("it is in sight", () => visitor.page.locator("#confusion").evaluate((node) => node.getBoundingClientRect().top < innerHeight));
  await visitor.page.evaluate(() => scrollTo(0, 0));
  await visitor.picture("report");
});

test("unfinished runs are marked and put together with nobody, and a score that nobody tells is not told", async () => {
  const results = visitor.page.locator("section", { has: visitor.page.locator("#results") }).locator("tbody tr");
  await until("the lines", async () => (await results.count()) === 5);
  const rows = await results.allTextContents();
  assert.ok(rows.some((text) => text.includes("FeDEQ (2 of 3 runs)")), String(rows));
  assert.ok(rows.some((text) => /Local, batch_size = 9.*not told/.test(text)), String(rows));
  assert.equal(await visitor.page.locator('tr[data-run="silent"] td[data-label="Accuracy, local"]').textContent(), "not told");
  assert.match(await visitor.page.getByRole("note").textContent(), /was killed before its end: 5 of 8 rounds are over/);
  assert.match(await visitor.page.locator('tr[data-run^="fedeq <"]').textContent(), /killed/);
});

test("one colour a method, and FeDEQ's line is the strongest", async () => {
  const width = (name) => visitor.page.locator(".legend.shared li", { hasText: name }).first().locator("line").getAttribute("stroke-width");
  assert.ok(Number(await width("FeDEQ")) > Number(await width("FedAvg")));
});

test("confusion matrices are square and say what is true and what predicted", async () => {
  const matrix = visitor.page.locator("table.confusion").first();
  const [rows, columns] = [await matrix.locator("tbody tr").count(), await matrix.locator("thead th").count()];
  assert.ok(rows > 0 && rows === columns, `${rows} by ${columns}`);
  assert.match(await matrix.locator(".corner").textContent(), /true.*predicted/);
});

test("a run of it has a page of its own, and the way back", async () => {
  await visitor.page.locator("table.runs").getByRole("link", { name: "fedeq-0" }).click();
  await until("its curves", async () => (await visitor.points("Accuracy")) === 8);
  assert.equal(await visitor.page.getByRole("button", { name: "Stop" }).count(), 0);
  await visitor.page.getByText("The experiment, with every choice").click();
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
  await until("two matrices", async () => (await visitor.page.locator("table.confusion").count()) === 2);
  await visitor.page.getByRole("link", { name: "Report" }).click();
  await visitor.at();
});

test("it is printed with pictures that are drawn for paper, no wider than it", async () => {
  await visitor.chart("Accuracy").waitFor();
  await visitor.page.emulateMedia({ media: "print" });
  await visitor.page.evaluate(() => dispatchEvent(new Event("beforeprint")));
  assert.ok((await visitor.page.locator(".printed svg path").count()) > 8);
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
