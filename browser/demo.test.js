// The report of the demonstration: the first page a newcomer sees.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { once } from "node:events";
import { join } from "node:path";
import { PICTURES, Visitor, Workshop, until } from "./support.js";

const workshop = new Workshop();
let visitor;

before(async () => {
  // The whole demonstration for the pictures of the documentation, a short one else.
  const short = PICTURES ? [] : ["--rounds", "2", "--seeds", "2"];
  const [code] = await once(workshop.start(["demo", "--quiet", "--out", "runs/demo", ...short]), "exit");
  assert.equal(code, 0);
  const address = `file://${join(workshop.folder, "runs/demo/report.html")}`;
  visitor = await Visitor.arrive(address);
  visitor.address = address;
});

after(async () => {
  await visitor?.browser.close();
  await workshop.close();
});

test("it begins with what was found, and shows four methods", async () => {
  await visitor.chart("Accuracy").waitFor();
  await until("four curves", async () => (await visitor.curves("Accuracy")) === 4);
  assert.match(await visitor.page.locator("main").textContent(), /FeDEQ has /);
  assert.deepEqual(await visitor.wide_tables(1000), []);
  // Its beginning: the title, what was found, and the results.
  const small = await visitor.browser.newContext({ viewport: { width: 1000, height: 900 }, deviceScaleFactor: 0.7 });
  const page = await small.newPage();
  await page.goto(visitor.address);
  const summary = page.locator("section", { has: page.locator("#summary") });
  await summary.locator("table").waitFor();
  const end = await summary.locator("table").evaluate((table) => Math.ceil(table.getBoundingClientRect().bottom + scrollY + 8));
  await page.setViewportSize({ width: 1000, height: end });
  await visitor.documented("report", page, end, "device");
  await small.close();
});

test("it is read on a phone, in the dark", async () => {
  await visitor.page.setViewportSize({ width: 360, height: 740 });
  await visitor.page.emulateMedia({ colorScheme: "dark" });
  await new Promise((next) => setTimeout(next, 500));
  assert.ok((await visitor.overhang()) <= 0, `${await visitor.overhang()} pixels too wide`);
  // A whole chart, down to its axis; tables above it take their time to become cards.
  const below = () => visitor.chart("Accuracy").evaluate((chart) => {
    scrollBy(0, chart.getBoundingClientRect().bottom - innerHeight + 4);
    return Math.abs(chart.getBoundingClientRect().bottom - innerHeight);
  });
  await until("the chart's end is that of the screen", async () => (await below()) < 6);
  // The short demonstration has one evaluation, too little for curves.
  await (PICTURES ? Visitor.drawn(visitor.page, "Accuracy") : visitor.chart("Accuracy").locator("canvas").waitFor());
  await until("it still is", async () => (await below()) < 6);
  await visitor.documented("phone", visitor.page, 740);
});

test("nothing went wrong, and nothing was loaded", () => {
  assert.deepEqual(visitor.errors, []);
  assert.deepEqual(visitor.requests.filter((url) => !url.startsWith("file:") && !url.startsWith("blob:") && !url.startsWith("data:")), []);
});
