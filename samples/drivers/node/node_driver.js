// node-postgres: run with the server's address in PGHOST and PGPORT.
"use strict";

const assert = require("node:assert");
const { once } = require("node:events");
const { pipeline } = require("node:stream/promises");
const { Readable } = require("node:stream");
const { Client, Pool } = require("pg");
const { from: copyFrom, to: copyTo } = require("pg-copy-streams");

const NAME = `node-postgres ${require("pg/package.json").version}`;
const WHERE = { user: "ann", database: "bank" };
const LONG = "select count(*) from generate_series(1, 1000000000000)";
let passed = 0;
let failed = 0;

function equal(name, got, expected) {
  try {
    assert.deepStrictEqual(got, expected);
    passed += 1;
  } catch {
    failed += 1;
    console.log(`driver: ${NAME}: ${name}: expected`, expected, "got", got);
  }
}

async function sqlstate(work) {
  try {
    await work();
    return null;
  } catch (error) {
    return error.code ?? String(error);
  }
}

async function connected(work, options = {}) {
  const client = new Client({ ...WHERE, ...options });
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}

function row(number) {
  if (number % 4 === 3) {
    return [number, null, null, null, null, null, null, null];
  }
  return [
    number,
    String(number * 2 ** 40),
    `größe ${number}`,
    `${number}.25`,
    new Date(2026, 0, 31, 12, 30, number % 60, 123),
    number % 2 === 0,
    Buffer.from([0, number % 256, 255]),
    number / 4,
  ];
}

const INSERT = "insert into node_t values ($1, $2, $3, $4, $5, $6, $7, $8)";

async function rows() {
  await connected(async (client) => {
    await client.query(
      "create table node_t (id int primary key, big bigint, name text, amount numeric(12,2), at timestamp, " +
        "ok boolean, raw bytea, ratio double precision)",
    );
    for (let number = 0; number < 12; number++) {
      // With a name it is prepared once.
      const insert = { name: "insert", text: INSERT, values: row(number) };
      equal(`insert ${number}`, (await client.query(insert)).rowCount, 1);
    }
    for (let number = 0; number < 12; number++) {
      const text = "select * from node_t where id = $1";
      for (const name of ["select", undefined]) {
        const found = await client.query({ name, text, values: [number], rowMode: "array" });
        equal(`row ${number}`, found.rows, [row(number)]);
      }
    }
  });
}

async function errors() {
  await connected(async (client) => {
    const insert = { name: "insert", text: "insert into node_t (id, name) values ($1, $2)", values: [1, "x"] };
    for (let round = 0; round < 6; round++) {
      await client.query("BEGIN");
      equal("a unique violation", await sqlstate(() => client.query(insert)), "23505");
      equal("in a failed block", await sqlstate(() => client.query("select 1")), "25P02");
      await client.query("ROLLBACK");
    }
    await client.query("BEGIN");
    equal("a syntax error", await sqlstate(() => client.query("selec 1")), "42601");
    await client.query("ROLLBACK");
    equal("after a rollback", (await client.query("select count(*) from node_t")).rows, [{ count: "12" }]);
  });
}

// Two connections lock two rows in opposite orders; the victim runs again.
async function conflicts() {
  await connected(async (one) => {
    await one.query("create table node_account (id int primary key, balance int)");
    await one.query("insert into node_account values (1, 100), (2, 100)");
    await connected(async (two) => {
      let arrived = 0;
      let go;
      const both = new Promise((resolve) => (go = resolve));
      const retries = [];
      const move = async (client, source, target) => {
        let first = true;
        for (;;) {
          try {
            const text = "update node_account set balance = balance + $1 where id = $2";
            await client.query("BEGIN");
            await client.query({ name: "move", text, values: [-10, source] });
            if (first) {
              first = false;
              arrived += 1;
              if (arrived === 2) go();
              await both;
            }
            await client.query({ name: "move", text, values: [10, target] });
            await client.query("COMMIT");
            return;
          } catch (error) {
            await client.query("ROLLBACK");
            if (!["40001", "40P01"].includes(error.code)) throw error;
            retries.push(error.code.slice(0, 2));
          }
        }
      };
      await Promise.all([move(one, 1, 2), move(two, 2, 1)]);
      equal("a victim of class 40", retries, ["40"]);
    });
    const found = await one.query("select balance from node_account order by id");
    equal("both moves are done", found.rows, [{ balance: 100 }, { balance: 100 }]);
  });
}

async function bulk() {
  await connected(async (client) => {
    await client.query("create table node_bulk (id int primary key, name text)");
    const lines = Array.from({ length: 1000 }, (_, number) => `${number}\t${number % 2 ? "\\N" : "größe"}\n`);
    const copy = client.query(copyFrom("copy node_bulk from stdin"));
    await pipeline(Readable.from(lines), copy);
    equal("COPY FROM", copy.rowCount, 1000);
    let text = "";
    const out = client.query(copyTo("copy node_bulk to stdout"));
    out.on("data", (data) => (text += data));
    await once(out, "end");
    equal("COPY TO", text.split("\n").length, 1001);
    const values = Array.from({ length: 200 }, (_, number) => [2000 + number, `name ${number}`]);
    const places = values.map((_, at) => `($${2 * at + 1}, $${2 * at + 2})`).join(", ");
    const inserted = await client.query(`insert into node_bulk values ${places}`, values.flat());
    equal("an insert of many rows", inserted.rowCount, 200);
  });
}

async function arrays() {
  await connected(async (client) => {
    const found = await client.query("select id from node_t where id = any($1) order by id", [[1, 2, 2000]]);
    equal("= ANY", found.rows, [{ id: 1 }, { id: 2 }]);
  });
}

async function pool() {
  const pool = new Pool({ ...WHERE, max: 1 });
  for (let round = 0; round < 12; round++) {
    const client = await pool.connect();
    const found = await client.query({ name: "pooled", text: "select name from node_t where id = $1", values: [1] });
    equal("from the pool", found.rows, [{ name: "größe 1" }]);
    client.release();
    equal("an error", await sqlstate(() => pool.query("insert into node_t (id) values (1)")), "23505");
  }
  await pool.end();
}

async function limits() {
  await connected(
    async (client) => {
      equal("a statement's time is up", await sqlstate(() => client.query(LONG)), "57014");
      equal("after it", (await client.query("show statement_timeout")).rows, [{ statement_timeout: "50ms" }]);
    },
    { statement_timeout: 50 },
  );
  await connected(
    async (client) => {
      equal("in the options of the start", await sqlstate(() => client.query(LONG)), "57014");
    },
    { options: "-c statement_timeout=50ms" },
  );
}

async function main() {
  for (const part of [rows, errors, conflicts, bulk, arrays, pool, limits]) {
    try {
      await part();
    } catch (error) {
      equal(part.name, String(error), "no error");
    }
  }
  if (failed > 0) {
    console.log(`driver: ${NAME} failed ${failed} of ${passed + failed} checks`);
    process.exit(1);
  }
  console.log(`driver: ${NAME} passed ${passed} checks`);
}

main();
