// The dashboard in a real browser, with real runs on the built-in digits.
import assert from "node:assert/strict";
import { cpSync, mkdirSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { Visitor, Workshop, until } from "./support.js";

const workshop = new Workshop();
let visitor;
let live;
let served;

const is = (state) => async () => (await visitor.state().textContent()).includes(state);

before(async () => {
  await Promise.all([workshop.finished("first", "plan.rounds=6"), workshop.finished("second", "plan.rounds=6", "method=fedavg")]);
  mkdirSync(workshop.path("broken"));
  writeFileSync(workshop.path("broken", "experiment.toml"), "seed = 'none'");
  writeFileSync(workshop.path("broken", "rounds.jsonl"), "");
  mkdirSync(workshop.path("headless"));
  writeFileSync(workshop.path("headless", "status.json"), "{");
  writeFileSync(workshop.path("headless", "rounds.jsonl"), "");
  cpSync(workshop.path("first"), workshop.path("linked"), { recursive: true });
  rmSync(workshop.path("linked", "experiment.toml"));
  symlinkSync(workshop.path("first", "experiment.toml"), workshop.path("linked", "experiment.toml"));
  // Two steps are too few for the solver, and it must say so.
  live = workshop.run("live", "plan.rounds=2000", "model.equilibrium.stop.max_steps=2");
  served = await workshop.dashboard();
  visitor = await Visitor.arrive(served.address);
});

after(async () => {
  await visitor?.browser.close();
  await workshop.close();
});

test("the printed address opens it once, and a cookie from then on", async () => {
  assert.match(served.address, /\?token=[0-9a-f]{32}$/);
  assert.equal(visitor.page.url(), visitor.address, "the token does not stay in the address");
  await visitor.page.reload();
  await visitor.page.getByRole("heading", { name: "Runs" }).waitFor();
});

test("who does not know the token sees only the page that asks for it", async () => {
  const page = await visitor.stranger();
  assert.equal((await page.goto(visitor.address)).status(), 401);
  await page.getByText("asks for its access token").waitFor();
  assert.equal((await page.goto(`${visitor.address}api/runs`)).status(), 403);
  await page.goto(visitor.address);
  await page.getByLabel("Token").fill(new URL(served.address).searchParams.get("token"));
  await page.getByRole("button", { name: "Open" }).click();
  await page.getByRole("heading", { name: "Runs" }).waitFor();
  await page.context().close();
});

test("--open opens a page of one's own that leads in, and shows the token to nobody else", async () => {
  const token = new URL(served.address).searchParams.get("token");
  assert.ok(!served.page.includes(token), "arguments can be seen by every user of the machine");
  assert.equal(statSync(served.page).mode & 0o777, 0o600);
  assert.ok(readFileSync(served.page, "utf8").includes(token));
  const page = await visitor.stranger();
  await page.goto(`file://${served.page}`);
  await page.getByRole("heading", { name: "Runs" }).waitFor();
  assert.equal(page.url(), visitor.address);
  await page.context().close();
});

test("all runs are listed with their states, and damaged folders say what is wrong with them", async () => {
  await visitor.open();
  await until("the live run appears", async () => (await visitor.row("live").textContent().catch(() => "")).includes("running"));
  assert.match(await visitor.row("first").textContent(), /finished.*FeDEQ.*digits.*deq-resnet-xs.*6 of 6.*%/s);
  assert.match(await visitor.row("second").textContent(), /finished.*FedAvg/s);
  assert.match(await visitor.row("broken").textContent(), /experiment\.toml.*malformed/s);
  assert.match(await visitor.row("headless").textContent(), /experiment\.toml.*malformed/s);
  assert.match(await visitor.row("linked").textContent(), /is a link.*malformed/s);
  await visitor.picture("list");
});

test("a damaged folder has a page with a message", async () => {
  await visitor.open("run", "broken");
  await visitor.page.getByRole("alert").filter({ hasText: "experiment.toml" }).waitFor();
  await until("its state", is("malformed"));
  await visitor.picture("malformed");
  await visitor.open("run", "../../etc");
  await visitor.page.getByRole("alert").filter({ hasText: "no run of this name" }).waitFor();
});

test("curves grow while a run trains, and the clients of the round are shown", async () => {
  await visitor.open("run", "live");
  await visitor.chart("Accuracy").waitFor();
  const points = await visitor.points("Accuracy");
  await until("the curve grows", async () => (await visitor.points("Accuracy")) > points + 1);
  await visitor.page.locator(".tiles li[data-state]").first().waitFor();
  await until("somebody works", async () => (await visitor.page.locator('.tiles li[data-state="working"]').count()) > 0);
  assert.match(await visitor.page.locator(".facts").textContent(), /Time left\d/);
  await visitor.picture("live");
});

test("a healthy run that trains shows its curves, how far it is, and no warning", async () => {
  const { page } = visitor;
  const healthy = workshop.run("healthy", "plan.rounds=400");
  await until("its first rounds", () => workshop.lines("healthy") > 1);
  await visitor.open("run", "healthy");
  await until("a curve", async () => (await visitor.points("Accuracy")) >= 25);
  assert.equal(await page.getByRole("alert").filter({ visible: true }).count(), 0);
  assert.match(await page.locator(".head").textContent(), /round \d+ of 400/);
  assert.equal(await page.locator('[aria-current="page"]').textContent(), "healthy", "the way leads to where one is");
  // From its state to the end of the first charts, with the clients at work, who rest between rounds.
  const small = await visitor.browser.newContext({ viewport: { width: 1000, height: 900 }, deviceScaleFactor: 0.7 });
  const pictured = await small.newPage();
  await pictured.goto(served.address);
  await pictured.goto(`${visitor.address}#/run/healthy`);
  await pictured.locator(".tiles li[data-state]").first().waitFor();
  const end = await pictured.locator("figure.chart").first().evaluate((chart) => Math.ceil(chart.getBoundingClientRect().bottom + scrollY + 8));
  await pictured.setViewportSize({ width: 1000, height: end });
  await Visitor.drawn(pictured, "Accuracy");
  await visitor.documented("live", pictured, end, "device");
  await small.close();
  healthy.kill("SIGKILL");
  await visitor.open("run", "live");
});

test("a warning appears when samples stop converging", async () => {
  await visitor.page.getByRole("alert").filter({ hasText: "did not converge" }).waitFor();
});

test("pause holds a run up, and resume lets it go on", async () => {
  await visitor.page.getByRole("button", { name: "Pause" }).click();
  await until("it is paused", is("paused"));
  const rounds = workshop.lines("live");
  await new Promise((next) => setTimeout(next, 1500));
  assert.ok(workshop.lines("live") <= rounds + 1, "a paused run goes on");
  await visitor.picture("paused");
  const held = workshop.lines("live");
  await visitor.page.getByRole("button", { name: "Resume" }).click();
  await until("it runs again", is("running"));
  await until("rounds go on", () => workshop.lines("live") > held);
});

test("stop ends a run, and resume starts it again where it was", async () => {
  await visitor.page.getByRole("button", { name: "Stop" }).click();
  await until("it is stopped", is("stopped"));
  await until("its process is gone", () => live.exitCode !== null);
  assert.equal(live.exitCode, 130);
  await visitor.page.getByRole("button", { name: "Resume" }).click();
  await until("it runs again", is("running"));
  const rounds = workshop.lines("live");
  await until("rounds go on", () => workshop.lines("live") > rounds);
  await visitor.page.getByRole("button", { name: "Stop" }).click();
  await until("it is stopped again", is("stopped"));
});

test("a killed run is shown as such", async () => {
  const child = workshop.run("victim", "plan.rounds=2000");
  await until("its first round", () => workshop.lines("victim") > 0);
  await visitor.open("run", "victim");
  await until("it runs", is("running"));
  child.kill("SIGKILL");
  await until("it is killed", is("killed"));
  assert.match(await visitor.page.locator(".head").textContent(), /Resume continues from its last checkpoint/);
  await visitor.chart("Loss").waitFor();
  const [download] = await Promise.all([visitor.page.waitForEvent("download"), visitor.chart("Loss").getByRole("button", { name: "as SVG" }).click()]);
  assert.match(readFileSync(await download.path(), "utf8"), /victim \(unfinished, after \d+ rounds?\)/);
  await visitor.picture("killed");
});

test("chosen runs are laid over each other", async () => {
  await visitor.open();
  await visitor.page.getByLabel("Choose first").check();
  await visitor.page.getByLabel("Choose second").check();
  await visitor.page.getByRole("button", { name: "Compare 2" }).click();
  await visitor.chart("Accuracy").waitFor();
  await until("two curves", async () => (await visitor.curves("Accuracy")) === 2);
  await visitor.chart("Accuracy").scrollIntoViewIfNeeded();
  await Visitor.drawn(visitor.page, "Accuracy");
  assert.match(await visitor.page.locator("section", { has: visitor.page.locator("#results") }).locator("table").textContent(), /FeDEQ.*FedAvg.*[+−]\d/s);
  assert.match(await visitor.page.locator("section", { has: visitor.page.locator("#differences") }).textContent(), /method\.name.*fedeq.*fedavg/s);
  await visitor.page.getByLabel("Curves over").selectOption("bytes");
  await visitor.chart("Accuracy").locator(".plot").focus();
  await visitor.page.keyboard.press("End");
  await until("curves over bytes", async () => /after [\d.]+\s[kM]B: /.test(await visitor.chart("Accuracy").locator(".readout").textContent()));
  await visitor.page.getByLabel("Curves over").selectOption("round");
  assert.deepEqual(await visitor.wide_tables(1000), []);
  await visitor.page.setViewportSize({ width: 1200, height: 900 });
  await visitor.page.getByRole("button", { name: "Compute them" }).click();
  await until("a matrix each", async () => (await visitor.page.locator("table.confusion").count()) === 2);
  await visitor.picture("compare");
});

test("two methods are compared over three seeds, seed by seed, with the settings in which they differ", async () => {
  const [seeds, methods] = [[0, 1, 2], ["fedeq", "fedavg"]];
  for (const seed of seeds) await Promise.all(methods.map((method) => workshop.finished(`../compared/${method}-${seed}`, "plan.rounds=30", `method=${method}`, `seed=${seed}`)));
  const small = await visitor.browser.newContext({ viewport: { width: 1000, height: 900 }, deviceScaleFactor: 0.7 });
  const page = await small.newPage();
  const errors = [];
  page.on("pageerror", (error) => errors.push(error.message));
  await page.goto(`${await workshop.open_dashboard("compared")}#/compare/${seeds.flatMap((seed) => methods.map((method) => `${method}-${seed}`)).join("/")}`);
  const results = page.locator("section", { has: page.locator("#results") }).locator("tbody tr");
  await until("two lines", async () => (await results.count()) === 2);
  // What the summaries say, without the page: the mean of the differences, and its standard error.
  const accuracy = (method, seed) => JSON.parse(readFileSync(workshop.path("..", "compared", `${method}-${seed}`, "summary.json"), "utf8")).evaluation.local.mean;
  const apart = seeds.map((seed) => 100 * (accuracy("fedavg", seed) - accuracy("fedeq", seed)));
  const mean = apart.reduce((sum, value) => sum + value, 0) / 3;
  const error = Math.sqrt(apart.reduce((sum, value) => sum + (value - mean) ** 2, 0) / 2 / 3);
  const rows = await results.evaluateAll((all) => all.map((row) => [row.cells[0].textContent.trim(), row.querySelector('[data-label="Difference, local"]').textContent]));
  const [first] = rows.map(([name]) => name.split(" ")[0]);
  const sign = first === "FeDEQ" ? 1 : -1;
  const wanted = `${sign * mean < 0 ? "−" : "+"}${Math.abs(mean).toFixed(1)}\u00a0±\u00a0${error.toFixed(1)}`;
  assert.deepEqual(rows.map(([, difference]) => difference), ["", wanted]);
  assert.match(await page.locator("section", { has: page.locator("#differences") }).textContent(), /method\.name.*fed(eq|avg)/s);
  await page.locator('figure.chart[data-title="Accuracy"]').scrollIntoViewIfNeeded();
  await Visitor.drawn(page, "Accuracy");
  // Captions of other lengths, plots of one height.
  const tops = await page.locator("figure.chart:visible .plot").evaluateAll((all) => all.slice(0, 2).map((plot) => plot.getBoundingClientRect().top));
  assert.ok(Math.abs(tops[0] - tops[1]) < 1, String(tops));
  // From the results to the end of the first charts.
  const [top, end] = await page.evaluate(() => [document.querySelector("#results").getBoundingClientRect().top + scrollY - 12, document.querySelector("figure.chart:not([hidden])").getBoundingClientRect().bottom + scrollY + 8]);
  await page.setViewportSize({ width: 1000, height: Math.ceil(end - top) });
  await page.evaluate((place) => scrollTo(0, place), top);
  await Visitor.drawn(page, "Shared models");
  await visitor.documented("compare", page, Math.ceil(end - top), "device");
  assert.deepEqual(errors, []);
  await small.close();
});

test("a client shows its labels, its accuracy and its head", async () => {
  await visitor.open("run", "first");
  await visitor.page.locator("section", { has: visitor.page.getByRole("heading", { name: "Clients", exact: true }) }).getByRole("link").first().click();
  await visitor.page.getByText("Samples by label").waitFor();
  const trained = await visitor.page.evaluate(async () => (await (await fetch("/api/clients?run=first")).json()).clients.find((row) => row.rounds > 1));
  await visitor.open("run", "first", "client", String(trained.client));
  await visitor.page.getByText(`It took part in ${trained.rounds} rounds`).waitFor();
  assert.equal(await visitor.points("Accuracy"), 6);
  assert.equal(await visitor.points("Movement of the head"), trained.rounds);
  await visitor.page.getByText("Confusion matrix", { exact: true }).click();
  const matrix = visitor.page.locator("table.confusion");
  await matrix.waitFor();
  const cells = await matrix.locator("tbody td").allTextContents();
  assert.equal(cells.reduce((sum, text) => sum + Number(text), 0), trained.test, "every test sample is counted once");
  await visitor.picture("client");
});

test("everything can be reached and read from the keyboard", async () => {
  // A pointer that rests where a chart comes to lie reads it, too.
  await visitor.page.mouse.move(0, 0);
  await visitor.open();
  await visitor.row("first").waitFor();
  const { keyboard } = visitor.page;
  const focused = () => visitor.page.evaluate(() => document.activeElement.textContent || document.activeElement.getAttribute("aria-label") || document.activeElement.tagName);
  const seen = [];
  for (let presses = 0; presses < 60 && !seen.includes("first"); presses += 1) {
    await keyboard.press("Tab");
    seen.push(await focused());
  }
  assert.ok(seen.includes("first"), `Tab never reached the run: ${seen}`);
  assert.notEqual(await visitor.page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle), "none");
  await keyboard.press("Enter");
  await visitor.at("run", "first");
  await visitor.chart("Accuracy").waitFor();
  await visitor.chart("Accuracy").locator(".plot").focus();
  await keyboard.press("End");
  await until("a value is read", async () => /round 6: own model/.test(await visitor.chart("Accuracy").locator(".readout").textContent()));
  await keyboard.press("ArrowLeft");
  assert.match(await visitor.chart("Accuracy").locator(".readout").textContent(), /round 5/);
  await visitor.chart("Accuracy").locator("summary").focus();
  await keyboard.press("Enter");
  await until("the numbers are there", async () => (await visitor.chart("Accuracy").locator("tbody tr").count()) === 6);
});

test("nothing is wider than a phone", async () => {
  await visitor.page.setViewportSize({ width: 360, height: 740 });
  for (const [name, path, landmark] of [
    ["phone-list", [], 'tr[data-run="first"]'],
    ["phone-run", ["run", "first"], "figure.chart"],
    ["phone-compare", ["compare", "first", "second"], "figure.chart"],
    ["phone-client", ["run", "first", "client", "0"], "figure.chart"],
    ["phone-malformed", ["run", "broken"], ".notice.bad"],
  ]) {
    await visitor.open(...path);
    await visitor.page.locator(landmark).first().waitFor();
    await new Promise((next) => setTimeout(next, 700));
    await visitor.picture(name);
    assert.ok((await visitor.overhang()) <= 0, `${name} is ${await visitor.overhang()} pixels too wide`);
    assert.deepEqual(await visitor.wide_tables(360), [], name);
    assert.deepEqual(await visitor.nameless(), [], name);
    await visitor.page.setViewportSize({ width: 360, height: 740 });
  }
});

/** How light a colour is, from 0 to 1, as the guidelines for contrast define it. */
function luminance(colour) {
  const channels = colour.startsWith("#") ? [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16)) : colour.match(/[\d.]+/g).slice(0, 3).map(Number);
  const [red, green, blue] = channels.map((value) => value / 255).map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

test("the dark page has light letters and the curves' light colours on dark paper, and the light page the other way round", async () => {
  await visitor.page.setViewportSize({ width: 1200, height: 900 });
  await visitor.page.emulateMedia({ colorScheme: "dark" });
  await visitor.open("run", "first");
  await visitor.page.locator("figure.chart").first().waitFor();
  const colours = () => visitor.page.evaluate(() => [".plot", "body", "h2", "figcaption .note", "a.home"].map((name) => getComputedStyle(document.querySelector(name))).map(({ color, backgroundColor }) => [color, backgroundColor]));
  const { colour } = await visitor.page.evaluate(async () => (await (await fetch("/api/runs")).json()).find(({ run }) => run === "first").info);
  assert.ok(colour.light !== colour.dark && luminance(colour.dark) > luminance(colour.light));
  /** Whether a colour is on a chart, as it was drawn. */
  const is_drawn = (wanted) => visitor.chart("Accuracy").locator("canvas").evaluate((canvas, [red, green, blue]) => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    for (let at = 0; at < data.length; at += 4) if (data[at + 3] === 255 && data[at] === red && data[at + 1] === green && data[at + 2] === blue) return true;
    return false;
  }, [1, 3, 5].map((at) => parseInt(wanted.slice(at, at + 2), 16)));
  for (const [scheme, own, other] of [["dark", colour.dark, colour.light], ["light", colour.light, colour.dark], ["dark", colour.dark, colour.light]]) {
    await visitor.page.emulateMedia({ colorScheme: scheme });
    await until(`curves for ${scheme} paper`, async () => (await is_drawn(own)) && !(await is_drawn(other)));
    const paper = luminance((await colours())[1][1]);
    assert.ok(scheme === "dark" ? paper < 0.03 : paper > 0.9, `paper of ${paper}`);
    for (const [letters] of await colours()) {
      const [low, high] = [luminance(letters), paper].sort((a, b) => a - b);
      assert.ok((high + 0.05) / (low + 0.05) >= 4.5, `${letters} on ${scheme} paper`);
    }
    const [low, high] = [luminance(own), paper].sort((a, b) => a - b);
    assert.ok((high + 0.05) / (low + 0.05) >= 3, `the curve's ${own} on ${scheme} paper`);
  }
  await visitor.picture("dark");
});

test("all words can be read, on every view, by day and by night", async () => {
  const views = [[], ["run", "first"], ["run", "live"], ["run", "broken"], ["run", "first", "client", "0"], ["compare", "first", "second"]];
  for (const view of views) {
    await visitor.open(...view);
    await visitor.page.locator("h1").waitFor();
    for (const colorScheme of ["light", "dark"]) {
      await visitor.page.emulateMedia({ colorScheme });
      assert.deepEqual(await visitor.pale(), [], `${view.join("/")} in the ${colorScheme}`);
    }
  }
});

test("nothing went wrong behind the scenes, and nothing came from elsewhere", () => {
  assert.deepEqual(visitor.errors, []);
  assert.ok(visitor.requests.length > 5);
  assert.deepEqual(visitor.requests.filter((url) => !url.startsWith(visitor.address) && !url.startsWith("blob:")), []);
});
