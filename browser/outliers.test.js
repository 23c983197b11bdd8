// Clients that are far from the others, in the table of a run whose liars are known.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { Visitor, Workshop, until } from "./support.js";

const workshop = new Workshop();
let visitor;
let liars;

before(async () => {
  const lies = ["attack=large-norm", "attack.share=0.1", "plan.aggregation.rule=median"];
  await workshop.finished("honest", "model=mlp", "plan.rounds=3");
  await workshop.finished("lied-to", "model=mlp", "plan.rounds=12", ...lies);
  liars = JSON.parse(readFileSync(workshop.path("lied-to", "summary.json"), "utf8")).attack.liars;
  visitor = await Visitor.arrive(await workshop.open_dashboard(join(workshop.folder, "runs")));
});

after(async () => {
  await visitor?.browser.close();
  await workshop.close();
});

const clients = () => visitor.page.locator("section", { has: visitor.page.getByRole("heading", { name: "Clients", exact: true }) });

/** The table with all its rows. */
async function all_rows() {
  await clients().getByRole("table").waitFor();
  const more = clients().getByRole("button", { name: /^Show all/ });
  if (await more.isVisible()) await more.click();
  return clients().locator("tbody tr");
}

test("who lies is marked, and it is said in how many rounds it was far from the others", async () => {
  await visitor.open("run", "lied-to");
  const told = (await visitor.page.evaluate(async () => (await (await fetch("/api/clients?run=lied-to")).json()).clients)).filter((row) => row.apart);
  const seen = told.filter((row) => liars.includes(row.client));
  assert.ok(seen.length > 0, "one of them took part");
  assert.ok(seen.every(({ apart }) => apart.outlier === apart.rounds), JSON.stringify(seen));
  assert.ok(seen.every(({ apart }) => apart.rounds > 1), `once is not enough to be marked: ${JSON.stringify(seen)}`);
  const rows = await all_rows();
  for (const { name, apart } of seen) {
    const row = rows.filter({ hasText: name });
    assert.equal(await row.locator(".badge").textContent(), "outlier");
    assert.ok((await row.textContent()).includes(`${apart.outlier} of ${apart.rounds} round`), await row.textContent());
  }
  const marked = told.filter(({ apart }) => apart.outlier > 1 && 2 * apart.outlier >= apart.rounds).length;
  assert.equal(await clients().locator(".badge").count(), marked, "and nobody else");
  await visitor.picture("outliers");
});

test("where no distances are noted there is no such column and no mark", async () => {
  await visitor.open("run", "honest");
  await until("the table", async () => (await (await all_rows()).count()) > 20);
  assert.ok(!(await clients().textContent()).includes("Outlier"));
  assert.equal(await clients().locator(".badge").count(), 0);
});

test("nothing went wrong behind the scenes", () => {
  assert.deepEqual(visitor.errors, []);
});
