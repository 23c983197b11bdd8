// Real runs of the built program, its dashboard, and a browser to look at it.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

const HERE = dirname(fileURLToPath(import.meta.url));
const FEDEQ = process.env.FEDEQ ?? resolve(HERE, "../target/debug/fedeq");
const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
export const ARTEFACTS = join(HERE, "artefacts");
/** Where pictures for the documentation go, when they are asked for: `PICTURES=../docs/pictures npm test`. */
export const PICTURES = process.env.PICTURES && resolve(HERE, process.env.PICTURES);

/** Few clients a round and one pass over their data: a round takes a fraction of a second. */
const SMALL = ["plan.evaluate_every=1", "plan.sampling.fraction=0.2", "training.epochs=1", "training.personal_epochs=1", "engine.checkpoint_every=1"];

/** A folder of runs that is gone afterwards, with everything that was started in it. */
export class Workshop {
  constructor() {
    this.folder = mkdtempSync(join(tmpdir(), "fedeq-browser-"));
    this.children = [];
    mkdirSync(ARTEFACTS, { recursive: true });
  }

  path(...parts) {
    return join(this.folder, "runs", ...parts);
  }

  start(options, env = process.env) {
    const child = spawn(FEDEQ, options, { cwd: this.folder, env, stdio: ["ignore", "pipe", "inherit"] });
    this.children.push(child);
    return child;
  }

  /** Begins a run; `settings` go over the small ones. */
  run(name, ...settings) {
    const set = [...SMALL, ...settings].flatMap((setting) => ["--set", setting]);
    return this.start(["run", "--quiet", "--out", join("runs", name), ...set]);
  }

  /** A run from beginning to end. */
  async finished(name, ...settings) {
    const [code] = await once(this.run(name, ...settings), "exit");
    if (code !== 0) throw new Error(`the run ${name} ended with ${code}`);
  }

  /** Copies of a finished run with journals of so many rounds: each with a value of rho of its own, or so many seeds a value, of which each is a little worse than the one before. */
  multiply(name, amount, rounds, { folder = "many", seeds = 1 } = {}) {
    const read = (file) => readFileSync(this.path(name, file), "utf8");
    const long = (journal, first) => {
      const lines = read(journal).trim().split("\n").map((line) => JSON.parse(line));
      const at = (round) => ({ ...lines[round % lines.length], round: round + first });
      return Array.from({ length: rounds }, (_, round) => `${JSON.stringify(at(round))}\n`).join("");
    };
    const journals = { "rounds.jsonl": long("rounds.jsonl", 0), "evaluations.jsonl": long("evaluations.jsonl", 1), "timings.jsonl": long("timings.jsonl", 1) };
    for (let number = 0; number < amount; number += 1) {
      const copy = join(this.folder, folder, `copy-${String(number).padStart(3, "0")}`);
      mkdirSync(copy, { recursive: true });
      for (const file of ["status.json", "summary.json", "clients.json"]) cpSync(this.path(name, file), join(copy, file));
      const seed = seeds > 1 ? number % seeds : number;
      const experiment = read("experiment.toml").replace(/^seed = \d+/m, `seed = ${seed}`).replace(/^rho = .*/m, `rho = ${(Math.floor(number / seeds) + 1) / 1000}`);
      writeFileSync(join(copy, "experiment.toml"), experiment);
      const worse = (text) => text.replaceAll(/"mean":([\d.]+)/g, (_, mean) => `"mean":${mean * (1 - 0.05 * seed)}`);
      for (const [journal, text] of Object.entries(journals)) writeFileSync(join(copy, journal), seeds > 1 ? worse(text) : text);
    }
  }

  /** Writes a report about some runs; gives its path. */
  async report(out, ...runs) {
    const [code] = await once(this.start(["report", ...runs, "--out", out]), "exit");
    if (code !== 0) throw new Error(`the report ${out} ended with ${code}`);
    return join(this.folder, out);
  }

  /** Serves a folder without asking for a token; gives its address. */
  async open_dashboard(folder) {
    const child = this.start(["dashboard", folder, "--port", "0", "--no-token"]);
    const [address] = await once(createInterface({ input: child.stdout }), "line");
    return address;
  }

  /** Serves the folder; gives the address that is printed, and the page that a browser is told to open. */
  async dashboard() {
    // Stands in for the system's way to open a page, and writes down what it is told.
    const [programs, note] = [join(this.folder, "bin"), join(this.folder, "opened")];
    mkdirSync(programs);
    writeFileSync(join(programs, "xdg-open"), `#!/bin/sh\nprintf '%s' "$*" > '${note}.partial' && mv '${note}.partial' '${note}'\n`, { mode: 0o755 });
    const env = { ...process.env, PATH: `${programs}:${process.env.PATH}`, XDG_RUNTIME_DIR: this.folder };
    const child = this.start(["dashboard", "runs", "--port", "0", "--open"], env);
    const [address] = await once(createInterface({ input: child.stdout }), "line");
    await until("a browser is told what to open", () => existsSync(note));
    return { address, page: readFileSync(note, "utf8") };
  }

  lines(name, journal = "rounds.jsonl") {
    const path = this.path(name, journal);
    return existsSync(path) ? readFileSync(path, "utf8").split("\n").length - 1 : 0;
  }

  async close() {
    this.children.forEach((child) => child.kill("SIGKILL"));
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
  }
}

/** A page, and whatever went wrong on it. */
export class Visitor {
  /** Comes by the address that was printed, as somebody does who pastes it. */
  static async arrive(address) {
    const visitor = new Visitor();
    visitor.address = new URL("/", address).href;
    visitor.errors = [];
    visitor.browser = await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox"] });
    visitor.page = await visitor.browser.newPage({ viewport: { width: 1200, height: 900 }, acceptDownloads: true });
    visitor.requests = [];
    visitor.page.on("request", (request) => visitor.requests.push(request.url()));
    visitor.page.setDefaultTimeout(20_000);
    visitor.page.on("console", (message) => message.type() === "error" && visitor.errors.push(message.text()));
    visitor.page.on("pageerror", (error) => visitor.errors.push(error.message));
    await visitor.page.goto(address);
    return visitor;
  }

  /** Somebody else, who has no cookies yet. */
  stranger() {
    return this.browser.newContext().then((context) => context.newPage());
  }

  /** Goes to a view. */
  async open(...path) {
    await this.page.goto(`${this.address}#/${path.map(encodeURIComponent).join("/")}`);
    await this.at(...path);
  }

  /** Waits for a view. Views have parts of the same names: what is done too early is done to the one before. */
  async at(...path) {
    const address = path.map(encodeURIComponent).join("/");
    await until(`the view "${address}"`, () => this.page.evaluate((wanted) => document.getElementById("main")?.dataset.address === wanted, address));
  }

  /** Keeps what is seen, for people to look at. */
  async picture(name) {
    await this.page.screenshot({ path: join(ARTEFACTS, `${name}.png`), fullPage: true });
  }

  /** A small picture for the documentation, of what is on the screen. */
  async documented(name, page = this.page, most = 640, scale = "css") {
    const path = join(PICTURES ?? ARTEFACTS, `${name}.png`);
    mkdirSync(dirname(path), { recursive: true });
    const size = page.viewportSize();
    await page.setViewportSize({ width: Math.min(size.width, 1000), height: Math.min(size.height, most) });
    await new Promise((next) => setTimeout(next, 500));
    await page.screenshot({ path, scale });
    await page.setViewportSize(size);
    if (statSync(path).size >= 120_000) throw new Error(`${name} is larger than 120 kB: ${statSync(path).size}`);
  }

  row(run) {
    return this.page.locator(`tr[data-run="${run}"]`);
  }

  state() {
    return this.page.locator("h1 .badge");
  }

  chart(title) {
    return this.page.locator(`figure.chart[data-title="${title}"]`);
  }

  /** How many points a chart's first curve has. */
  async points(title) {
    return Number(await this.chart(title).getAttribute("data-points"));
  }

  /** How many curves a chart has. */
  async curves(title) {
    return Number(await this.chart(title).getAttribute("data-curves"));
  }

  /** Reads a chart's values under the pointer, in its middle, and drags across a part of it. */
  async read_and_zoom(title, values) {
    // What is out of sight is not drawn.
    await this.chart(title).scrollIntoViewIfNeeded();
    const over = this.chart(title).locator(".u-over");
    await over.scrollIntoViewIfNeeded();
    const box = await over.boundingBox();
    await this.page.mouse.move(box.x + 0.5 * box.width, box.y + 20);
    await until(`values like ${values}`, async () => values.test(await this.chart(title).locator(".readout").textContent()));
    await this.page.mouse.move(box.x + 0.2 * box.width, box.y + 20);
    await this.page.mouse.down();
    await this.page.mouse.move(box.x + 0.6 * box.width, box.y + 30, { steps: 4 });
    await this.page.mouse.up();
    await until("a part is seen", async () => (await this.chart(title).getAttribute("data-zoomed")) === "true");
  }

  /** The words of the page whose contrast with what is behind them is below what the guidelines ask for, of all that can be used. */
  pale() {
    return this.page.evaluate(() => {
      const context = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
      // Whatever way a colour is written in: as it is painted over another.
      const painted = (colours) => {
        for (const colour of colours) {
          context.fillStyle = colour;
          context.fillRect(0, 0, 1, 1);
        }
        return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3);
      };
      const luminance = (channels) => {
        const [red, green, blue] = channels.map((value) => value / 255).map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
      };
      const behind = (node) => (node ? [...behind(node.parentElement), getComputedStyle(node).backgroundColor] : ["white"]);
      const least = ({ fontSize, fontWeight }) => (parseFloat(fontSize) >= 24 || (parseFloat(fontSize) >= 18.66 && Number(fontWeight) >= 700) ? 3 : 4.5);
      const found = new Set();
      const words = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
      while (words.nextNode()) {
        const [text, node] = [words.currentNode.textContent.trim(), words.currentNode.parentElement];
        if (!text || !node.checkVisibility({ opacityProperty: true, visibilityProperty: true }) || node.closest(":disabled, script, style, .unseen, .dim")) continue;
        const [paper, style] = [behind(node), getComputedStyle(node)];
        const [low, high] = [luminance(painted(paper)), luminance(painted([...paper, style.color]))].sort((a, b) => a - b);
        const contrast = (high + 0.05) / (low + 0.05);
        if (contrast < least(style)) found.add(`${node.tagName} ${node.className}: ${contrast.toFixed(2)}: ${text.slice(0, 40)}`);
      }
      return [...found];
    });
  }

  /** The tables that are wider than their frames, at a width of the screen. */
  async wide_tables(width) {
    await this.page.setViewportSize({ width, height: 900 });
    const tables = () => this.page.locator(".frame").evaluateAll((frames) => frames.map((frame) => ({ name: frame.getAttribute("aria-label"), over: frame.scrollWidth - frame.clientWidth, room: `${frame.dataset.room ?? frame.clientWidth}`.split(" ")[0], width: String(frame.clientWidth) })).filter(({ width: seen }) => seen !== "0"));
    await until("tables are fitted", async () => (await tables()).every(({ room, width: seen }) => room === seen));
    return (await tables()).filter(({ over }) => over > 0).map(({ name, over }) => `${name}: ${over} pixels too wide at ${width}`);
  }

  /** What can be used on the page and has no name, as Chromium tells it to screen readers. */
  async nameless() {
    const session = await this.page.context().newCDPSession(this.page);
    const { nodes } = await session.send("Accessibility.getFullAXTree");
    await session.detach();
    const usable = new Set(["button", "link", "textbox", "searchbox", "combobox", "slider", "checkbox", "progressbar", "meter", "img", "region", "navigation", "table", "group", "DisclosureTriangle"]);
    const seen = nodes.filter(({ ignored, role }) => !ignored && usable.has(role?.value));
    if (nodes.length < 5 || seen.length === 0) throw new Error("the tree of the page is empty");
    const focusable = ({ properties }) => (properties ?? []).some(({ name, value }) => name === "focusable" && value.value);
    // A group that nobody stops at needs no name.
    const nameless = ({ role, name, ...node }) => !name?.value?.trim() && (role.value !== "group" || focusable(node));
    return seen.filter(nameless).map(({ role, nodeId }) => `${role.value} ${nodeId}`);
  }

  /** Waits until curves are really on a chart's canvas: pixels of a colour, which the grid and its letters have not. */
  static async drawn(page, title, patience = 60_000) {
    await page.waitForFunction(
      (wanted) => {
        const canvas = document.querySelector(`figure.chart[data-title="${wanted}"] canvas`);
        if (!canvas || canvas.width === 0) return false;
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        let coloured = 0;
        for (let at = 0; at < data.length; at += 4) if (data[at + 3] > 200 && Math.max(data[at], data[at + 1], data[at + 2]) - Math.min(data[at], data[at + 1], data[at + 2]) > 80) coloured += 1;
        return coloured > 200;
      },
      title,
      { polling: 20, timeout: patience },
    );
  }

  /** How far the page is wider than the screen. */
  overhang() {
    return this.page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  }
}

/** Waits until something is so. */
export async function until(what, is_so, patience = 30_000) {
  const end = Date.now() + patience;
  while (!(await is_so())) {
    if (Date.now() > end) throw new Error(`waited in vain: ${what}`);
    await new Promise((next) => setTimeout(next, 100));
  }
}
