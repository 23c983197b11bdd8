// Many runs on one page: sorting, columns, grouping, hiding, zoom, export, and 200 runs of 400 rounds.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { Visitor, Workshop, until } from "./support.js";

const workshop = new Workshop();
const RHOS = [0.01, 0.1, 1];
let visitor;

before(async () => {
  // A sweep of 15 runs: three values, five seeds.
  for (const rho of RHOS) {
    await Promise.all([0, 1, 2, 3, 4].map((seed) => workshop.finished(`rho-${rho}-${seed}`, "plan.rounds=5", `method.rho=${rho}`, `seed=${seed}`)));
  }
  await workshop.finished("other", "plan.rounds=5", "method=fedavg");
  visitor = await Visitor.arrive(await workshop.open_dashboard("runs"));
  await visitor.page.getByRole("heading", { name: "Runs" }).first().waitFor();
});

after(async () => {
  await visitor?.browser.close();
  await workshop.close();
});

const names = () => visitor.page.locator("table.runs tbody tr").evaluateAll((rows) => rows.map((row) => row.dataset.run));
const legend = async () => (await visitor.page.locator(".legend.shared li").allTextContents()).map((text) => text.trim());

test("seeds are one line each with short labels that say only what differs, in one legend", async () => {
  await until("four lines", async () => (await legend()).length === 4);
  const shown = await legend();
  assert.deepEqual(shown.sort(), ["FeDEQ, rho = 0.01 (mean of 5 runs)", "FeDEQ, rho = 0.1 (mean of 5 runs)", "FeDEQ, rho = 1.0 (mean of 5 runs)", "FedAvg"]);
  assert.equal(await visitor.curves("Accuracy"), 4);
});

test("any column sorts, and any setting can be one", async () => {
  await visitor.page.getByLabel("Add a setting as a column").selectOption("method.rho");
  await visitor.page.getByRole("button", { name: "rho", exact: true }).click();
  await until("sorted by rho", async () => (await names()).slice(0, 5).every((name) => name.startsWith("rho-0.01-")));
  assert.equal(await visitor.page.locator('th[aria-sort="ascending"]').textContent(), "rho ▲×");
  await visitor.page.getByRole("button", { name: "Accuracy, local" }).click();
  const scores = () => visitor.page.locator('table.runs td[data-label="Accuracy, local"]').evaluateAll((cells) => cells.map((cell) => parseFloat(cell.textContent)));
  await until("the best first", async () => (await scores()).every((score, index, all) => index === 0 || score <= all[index - 1]));
  await visitor.page.getByRole("button", { name: "Accuracy, local" }).click();
  await until("the worst first", async () => (await scores()).every((score, index, all) => index === 0 || score >= all[index - 1]));
  await visitor.page.getByRole("button", { name: "Remove the column rho" }).click();
});

test("every run says when it was begun, and that sorts", async () => {
  const cells = visitor.page.locator('table.runs td[data-label="Started"]');
  const dates = await cells.allTextContents();
  assert.equal(dates.length, 16);
  for (const text of dates) {
    assert.match(text, /^\d{4}-\d{2}-\d{2} \d{2}:\d{2}$/);
    const age = Date.now() - new Date(text.replace(" ", "T"));
    assert.ok(age > -60_000 && age < 3_600_000, `${text} is not within the last hour`);
  }
  // The last that was begun; runs of one rho were begun together.
  await visitor.page.getByRole("button", { name: "Started" }).click();
  await until("the youngest first", async () => (await names())[0] === "other");
  await visitor.page.getByRole("button", { name: "Started" }).click();
  await until("the oldest first", async () => (await names())[0].startsWith("rho-0.01-"));
});

test("words sift runs by their settings, and curves follow", async () => {
  const find = visitor.page.getByLabel("Find");
  await find.fill("rho=0.1");
  await until("five runs", async () => (await names()).length === 5);
  await until("one curve", async () => (await visitor.curves("Accuracy")) === 1);
  await find.fill("nothing like that");
  await visitor.page.getByText("None of 16 runs fits").waitFor();
  await find.fill("");
  await until("all again", async () => (await names()).length === 16);
});

test("runs are put together by any setting, or not at all", async () => {
  await visitor.page.getByLabel("Group by").selectOption("each run");
  await until("a curve a run", async () => (await visitor.curves("Accuracy")) === 16);
  await visitor.page.getByLabel("Group by").selectOption("seed");
  await until("a curve a seed", async () => (await legend()).includes("seed = 4 (mean of 3 runs)"));
  await visitor.page.getByLabel("Group by").selectOption("method.name");
  await until("a curve a method", async () => String((await legend()).sort()) === "fedavg,fedeq (mean of 15 runs)");
  await visitor.page.getByLabel("Group by").selectOption("all but the seed");
  await until("a curve a setting", async () => (await visitor.curves("Accuracy")) === 4);
});

test("runs can be hidden, kept and shown again", async () => {
  await visitor.page.getByLabel("Choose other").check();
  await visitor.page.getByRole("button", { name: "Hide", exact: true }).click();
  await until("one less", async () => (await names()).length === 15 && (await visitor.curves("Accuracy")) === 3);
  await visitor.page.evaluate(() => scrollTo(0, document.querySelector(".curves").offsetTop - 160));
  await visitor.documented("sweep");
  await visitor.page.getByLabel("Choose rho-1-0").check();
  await visitor.page.getByRole("button", { name: "Keep only these" }).click();
  await until("one alone", async () => (await names()).length === 1);
  await visitor.page.getByRole("button", { name: "Show 15 hidden" }).click();
  await until("all again", async () => (await names()).length === 16);
});

test("pointing at a line lets it stand out everywhere", async () => {
  await visitor.page.locator(".legend.shared button").first().hover();
  await until("the others step back", async () => (await visitor.page.locator(".legend.shared li.dim").count()) === 3);
  await visitor.page.mouse.move(0, 0);
  await until("all are alike", async () => (await visitor.page.locator(".legend.shared li.dim").count()) === 0);
});

test("a run that is pointed at, in the table or on a chart, lets its curve stand out", async () => {
  // How much colour there is: what steps back is drawn with a seventh of it.
  const ink = () => visitor.chart("Accuracy").locator("canvas").evaluate((canvas) => canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.reduce((sum, value, at, data) => sum + (at % 4 === 3 ? value * (Math.max(data[at - 3], data[at - 2], data[at - 1]) - Math.min(data[at - 3], data[at - 2], data[at - 1])) : 0), 0));
  await visitor.chart("Accuracy").scrollIntoViewIfNeeded();
  const before = await ink();
  await visitor.row("other").hover();
  await until("the other curves step back", async () => (await ink()) < 0.7 * before);
  await visitor.page.mouse.move(0, 0);
  await until("all are as before", async () => (await ink()) > 0.95 * before);
  const box = await visitor.chart("Accuracy").locator(".u-over").boundingBox();
  await visitor.page.mouse.move(box.x + 0.5 * box.width, box.y + 0.4 * box.height);
  await until("the nearest curve stands out, also in the legend", async () => (await ink()) < 0.9 * before && (await visitor.page.locator(".legend.shared li.dim").count()) === 3);
  await visitor.page.mouse.move(0, 0);
  await until("all are as before", async () => (await ink()) > 0.95 * before);
});

test("charts say what they show, everything that can be used has a name, and no table is too wide", async () => {
  const said = await visitor.chart("Accuracy").locator(".plot").getAttribute("aria-label");
  assert.match(said, /^Accuracy: .*Arrow keys/);
  for (const name of ["FedAvg", "FeDEQ, rho = 0\\.1"]) assert.match(said, new RegExp(`${name} \\d+\\.\\d % at round 5`));
  assert.deepEqual(await visitor.nameless(), []);
  for (const width of [1000, 700, 360]) {
    assert.deepEqual(await visitor.wide_tables(width), []);
    assert.ok((await visitor.overhang()) <= 0, `${await visitor.overhang()} pixels too wide at ${width}`);
    await visitor.picture(`list-${width}`);
  }
  // Where rows are cards, headings still sort.
  await visitor.page.getByRole("button", { name: "Seed" }).click();
  await until("by seed", async () => (await names())[0].endsWith("-4"));
  await visitor.page.setViewportSize({ width: 1200, height: 900 });
  let [width, same] = [0, 0];
  await until("the chart has its width again, and keeps it", async () => {
    const before = width;
    width = await visitor.chart("Accuracy").locator(".u-over").evaluate((node) => node.clientWidth).catch(() => 0);
    same = width > 0 && width === before ? same + 1 : 0;
    return same === 5;
  });
});

test("dragging zooms, values are read under the pointer, and the whole comes back", async () => {
  const over = visitor.chart("Accuracy").locator(".u-over");
  await over.scrollIntoViewIfNeeded();
  const box = await over.boundingBox();
  await visitor.page.mouse.move(box.x + 0.5 * box.width, box.y + 20);
  await until("values", async () => /^round 3: .*%/.test(await visitor.chart("Accuracy").locator(".readout").textContent()));
  await visitor.page.mouse.move(box.x + 0.2 * box.width, box.y + 20);
  await visitor.page.mouse.down();
  await visitor.page.mouse.move(box.x + 0.6 * box.width, box.y + 30, { steps: 4 });
  await visitor.page.mouse.up();
  await until("a part", async () => (await visitor.chart("Accuracy").getAttribute("data-zoomed")) === "true");
  await visitor.chart("Accuracy").getByRole("button", { name: "Whole range" }).click();
  await until("the whole", async () => (await visitor.chart("Accuracy").getAttribute("data-zoomed")) === "false");
  await visitor.chart("Accuracy").locator(".plot").focus();
  await visitor.page.keyboard.press("+");
  await until("a part by keyboard", async () => (await visitor.chart("Accuracy").getAttribute("data-zoomed")) === "true");
  await visitor.page.keyboard.press("0");
  await until("the whole by keyboard", async () => (await visitor.chart("Accuracy").getAttribute("data-zoomed")) === "false");
});

test("scales, smoothing and abscissa change what is drawn", async () => {
  const before = await visitor.chart("Training loss").locator("canvas").evaluate((canvas) => canvas.toDataURL());
  const changed = (than) => async () => (await visitor.chart("Training loss").locator("canvas").evaluate((canvas) => canvas.toDataURL())) !== than;
  await visitor.page.getByLabel("Log scale").check();
  await until("a log scale", changed(before));
  await visitor.page.getByLabel("Log scale").uncheck();
  await visitor.page.getByLabel("Smoothing").fill("0.9");
  await until("smooth", changed(before));
  await visitor.page.getByLabel("Smoothing").fill("0");
});

test("a chart is saved as SVG, PNG and CSV", async () => {
  const saved = async (ending) => {
    const [download] = await Promise.all([visitor.page.waitForEvent("download"), visitor.chart("Accuracy").getByRole("button", { name: `as ${ending}` }).click()]);
    return [download.suggestedFilename(), readFileSync(await download.path())];
  };
  const [svg_name, svg] = await saved("SVG");
  assert.equal(svg_name, "accuracy.svg");
  assert.match(svg.toString(), /^<svg xmlns="http:\/\/www.w3.org\/2000\/svg".*FeDEQ, rho = 0.1.*<\/svg>$/s);
  const [, png] = await saved("PNG");
  assert.equal(png.subarray(1, 4).toString(), "PNG");
  const [, csv] = await saved("CSV");
  const lines = csv.toString().trim().split("\n");
  assert.equal(lines.length, 6, "five evaluations and a heading");
  assert.match(lines[0], /^rounds,.*"FeDEQ, rho = 0.1","FeDEQ, rho = 0.1, low","FeDEQ, rho = 0.1, high"/);
  assert.match(lines[5], /^5,0\.\d+/);
});

test("200 runs of 400 rounds are drawn, and how long that takes is printed", async () => {
  workshop.multiply("rho-1-0", 200, 400);
  const address = await workshop.open_dashboard("many");
  const page = await visitor.browser.newPage({ viewport: { width: 1200, height: 900 } });
  const errors = [];
  page.on("pageerror", (error) => errors.push(error.message));
  const drawn = async () => {
    const begun = Date.now();
    await page.goto(address);
    // What is out of sight is not drawn: the first chart is below 200 rows, of which fourteen are seen.
    await page.evaluate(() => new Promise((next) => {
      const seen = () => (document.querySelector(".curves:not([hidden])") ? next(document.querySelector(".curves").scrollIntoView()) : setTimeout(seen, 20));
      seen();
    }));
    await page.waitForFunction(() => Number(document.querySelector('figure.chart[data-title="Accuracy"]')?.dataset.curves) === 200, null, { polling: 20, timeout: 60_000 });
    await Visitor.drawn(page, "Accuracy");
    return Date.now() - begun;
  };
  // The server reads 240,000 lines once, and what is added from then on.
  const [first, again] = [await drawn(), await drawn()];
  // Meant to be less than two seconds. How fast a machine is proves nothing, so this is told and not tested.
  console.log(`200 runs of 400 rounds: ${first} ms when the server reads them for the first time, ${again} ms after that`);
  assert.equal(await page.locator("table.runs tbody tr").count(), 200);
  assert.deepEqual(errors, []);
  await page.close();
});

test("an empty folder says what to do", async () => {
  const page = await visitor.browser.newPage();
  mkdirSync(join(workshop.folder, "nothing"));
  await page.goto(await workshop.open_dashboard("nothing"));
  await page.getByText("No runs here yet").waitFor();
  await page.close();
});

test("nothing went wrong behind the scenes, and nothing came from elsewhere", () => {
  assert.deepEqual(visitor.errors, []);
  assert.deepEqual(visitor.requests.filter((url) => !url.startsWith(visitor.address) && !url.startsWith("blob:")), []);
});
