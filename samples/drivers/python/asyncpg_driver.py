"""asyncpg: run with the server's address in PGHOST and PGPORT."""

import asyncio

import asyncpg

from checks import Checks
from rows import COLUMNS, row

WHERE = {"user": "ann", "database": "bank"}
checks = Checks(f"asyncpg {asyncpg.__version__}")

TABLE = f"create table asyncpg_t {COLUMNS}"



async def sqlstate(work):
    try:
        await work
        return None
    except asyncpg.PostgresError as error:
        return error.sqlstate


async def rows():
    conn = await asyncpg.connect(**WHERE)
    await conn.execute(TABLE)
    insert = await conn.prepare("insert into asyncpg_t values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)")
    select = await conn.prepare("select * from asyncpg_t where id = $1")
    for number in range(12):
        await insert.fetch(*row(number))
    for number in range(12):
        checks.equal(f"row {number}", tuple(await select.fetchrow(number)), row(number))
    for number in range(12):
        got = await conn.fetchval("select name from asyncpg_t where id = $1", number)
        checks.equal(f"name {number}", got, row(number)[3])
    await conn.executemany(
        "insert into asyncpg_t values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        [row(number) for number in range(12, 60)],
    )
    checks.equal("executemany", await conn.fetchval("select count(*) from asyncpg_t"), 60)
    async with conn.transaction():
        found = [record["id"] async for record in conn.cursor("select id from asyncpg_t order by id", prefetch=7)]
        checks.equal("a cursor", found, list(range(60)))
    await conn.close()


async def errors():
    conn = await asyncpg.connect(**WHERE)
    insert = "insert into asyncpg_t (id, name) values ($1, $2)"
    transaction = conn.transaction()
    await transaction.start()
    checks.equal("a unique violation", await sqlstate(conn.execute(insert, 1, "y")), "23505")
    checks.equal("in a failed block", await sqlstate(conn.execute("select 1")), "25P02")
    await transaction.rollback()
    checks.equal("a syntax error", await sqlstate(conn.execute("selec 1")), "42601")
    async with conn.transaction(isolation="serializable"):
        try:
            async with conn.transaction():
                await conn.execute(insert, 1, "y")
        except asyncpg.UniqueViolationError as error:
            checks.equal("an error behind a savepoint", error.sqlstate, "23505")
        await conn.execute(insert, 100, "x")
    checks.equal("what is left", await conn.fetchval("select count(*) from asyncpg_t"), 61)
    await conn.reset()
    checks.equal("after a reset", await conn.fetchval("select 1"), 1)
    await conn.close()


async def conflicts():
    """Two connections lock two rows in opposite orders; the victim runs again."""
    one, two = [await asyncpg.connect(**WHERE) for _ in range(2)]
    await one.execute("create table asyncpg_account (id int primary key, balance int)")
    await one.execute("insert into asyncpg_account values (1, 100), (2, 100)")
    both = asyncio.Barrier(2)
    retries = []

    async def move(conn, source, target):
        update = "update asyncpg_account set balance = balance + $1 where id = $2"
        first = True
        while True:
            try:
                async with conn.transaction():
                    await conn.execute(update, -10, source)
                    if first:
                        first = False
                        await both.wait()
                    await conn.execute(update, 10, target)
                return
            except (asyncpg.SerializationError, asyncpg.DeadlockDetectedError) as error:
                retries.append(error.sqlstate)

    await asyncio.gather(move(one, 1, 2), move(two, 2, 1))
    checks.equal("a victim of class 40", [code[:2] for code in retries], ["40"])
    found = await one.fetch("select balance from asyncpg_account order by id")
    checks.equal("both moves are done", [record[0] for record in found], [100, 100])
    await one.close()
    await two.close()


async def bulk():
    conn = await asyncpg.connect(**WHERE)
    await conn.execute("create table asyncpg_bulk (id int primary key, name text)")
    text = "".join(f"{number}\tname {number}\n" for number in range(1000)).encode()

    async def source():
        yield text

    done = await conn.copy_to_table("asyncpg_bulk", source=source())
    checks.equal("COPY", done, "COPY 1000")
    await conn.close()


async def binary_copy():
    conn = await asyncpg.connect(**WHERE)
    await conn.execute("create table asyncpg_binary (id int primary key, name text)")
    records = [(number, None if number % 2 else str(number)) for number in range(1000)]
    done = await conn.copy_records_to_table("asyncpg_binary", records=records)
    checks.equal("copy_records_to_table", done, "COPY 1000")
    await conn.close()


async def arrays():
    conn = await asyncpg.connect(**WHERE)
    for _ in range(12):
        # The driver has a codec of its own for text[] only. For others it asks the system catalog.
        names = ["größe 1", "größe 2", "nobody"]
        found = await conn.fetch("select id from asyncpg_t where name = any($1)", names)
        checks.equal("= ANY", sorted(record[0] for record in found), [1, 2])
    await conn.close()


async def pool():
    async with asyncpg.create_pool(min_size=1, max_size=1, **WHERE) as pool:
        for number in range(12):
            async with pool.acquire() as conn:
                got = await conn.fetchval("select name from asyncpg_t where id = $1", 1)
                checks.equal(f"from the pool, {number}", got, "größe 1")
                await conn.execute("set application_name = 'borrowed'")
            async with pool.acquire() as conn:
                checks.equal(f"reset, {number}", await conn.fetchval("show application_name"), "")


LONG = "select count(*) from generate_series(1, 1000000000000)"


async def limits():
    conn = await asyncpg.connect(server_settings={"statement_timeout": "50"}, **WHERE)
    checks.equal("a statement's time is up", await sqlstate(conn.execute(LONG)), "57014")
    await conn.close()
    conn = await asyncpg.connect(**WHERE)
    # The driver sends a cancel request when its own time is up.
    try:
        await conn.execute(LONG, timeout=0.2)
        checks.equal("a time-out of the driver", None, "TimeoutError")
    except asyncio.TimeoutError:
        checks.equal("a time-out of the driver", "TimeoutError", "TimeoutError")
    checks.equal("after it", await conn.fetchval("select 1"), 1)
    await conn.close()


async def main():
    for part in (rows, errors, conflicts, bulk, binary_copy, arrays, pool, limits):
        try:
            await part()
        except Exception as error:
            checks.equal(part.__name__, f"{type(error).__name__}: {error}", "no error")
    checks.end()


asyncio.run(main())
