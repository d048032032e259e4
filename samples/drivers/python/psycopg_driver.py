"""psycopg 3: run with the server's address in PGHOST and PGPORT."""

import decimal
import threading

import psycopg
from psycopg import errors
from psycopg_pool import ConnectionPool

from checks import Checks
from rows import COLUMNS, row

CONNINFO = "user=ann dbname=bank"
checks = Checks(f"psycopg {psycopg.__version__}")

TABLE = f"create table psycopg_t {COLUMNS}"



def sqlstate(work):
    try:
        work()
        return None
    except psycopg.Error as error:
        return error.sqlstate


def rows():
    with psycopg.connect(CONNINFO) as conn:
        conn.execute(TABLE)
        insert = "insert into psycopg_t values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
        select = "select * from psycopg_t where id = %s"
        # The sixth execution is prepared by default.
        for number in range(12):
            conn.execute(insert, row(number))
        for number in range(12):
            checks.equal(f"row {number}", conn.execute(select, (number,)).fetchone(), row(number))
            with conn.cursor(binary=True) as cursor:
                got = cursor.execute(select, (number,)).fetchone()
                checks.equal(f"row {number} in binary", got, row(number))
        conn.commit()
        for number in range(12):
            got = conn.execute("select name from psycopg_t where id = %s", (number,), prepare=True).fetchone()
            checks.equal(f"name {number}", got, (row(number)[3],))
        # A text of another length, and an integer of another width, are parameters of other types.
        found = conn.execute("select id from psycopg_t where big = %s and name = %s", (1 << 40, "größe 1")).fetchone()
        checks.equal("a wide integer and a text", found, (1,))
        conn.execute("delete from psycopg_t where id = %s", (11,))
        with conn.cursor() as cursor:
            cursor.executemany(insert, [row(number) for number in range(11, 40)])
            checks.equal("executemany", cursor.rowcount, 29)
        with conn.pipeline():
            for number in range(40, 60):
                conn.execute(insert, row(number))
        checks.equal("a pipeline", conn.execute("select count(*) from psycopg_t").fetchone(), (60,))


def errors_and_rollbacks():
    insert = "insert into psycopg_t (id, name) values (%s, %s)"
    with psycopg.connect(CONNINFO) as conn:
        for number in range(100, 112):
            conn.execute(insert, (number, "x"))
        checks.equal("a unique violation", sqlstate(lambda: conn.execute(insert, (100, "y"))), "23505")
        checks.equal("in a failed block", sqlstate(lambda: conn.execute("select 1")), "25P02")
        conn.rollback()
        checks.equal("a syntax error", sqlstate(lambda: conn.execute("selec 1")), "42601")
        conn.rollback()
        # Statements that were prepared before the rollback are prepared again.
        for number in range(100, 112):
            conn.execute(insert, (number, "x"))
        with conn.transaction():
            try:
                with conn.transaction():
                    conn.execute(insert, (100, "y"))
            except errors.UniqueViolation as error:
                checks.equal("an error in a nested block", error.sqlstate, "23505")
            conn.execute(insert, (112, "x"))
        conn.commit()
        checks.equal("what is left", conn.execute("select count(*) from psycopg_t where id >= 100").fetchone(), (13,))

        class Mine(Exception):
            pass

        def fail():
            with psycopg.connect(CONNINFO) as other:
                for _ in range(12):
                    other.execute("select name from psycopg_t where id = %s", (1,))
                raise Mine

        try:
            fail()
            checks.equal("the application's own error", None, "Mine")
        except Exception as error:
            checks.equal("the application's own error", type(error).__name__, "Mine")


def conflicts():
    """Two connections lock two rows in opposite orders; the victim runs again."""
    with psycopg.connect(CONNINFO) as conn:
        conn.execute("create table psycopg_account (id int primary key, balance int)")
        conn.execute("insert into psycopg_account values (1, 100), (2, 100)")
    both = threading.Barrier(2)
    retries = []

    def move(source, target):
        with psycopg.connect(CONNINFO) as conn:
            first = True
            while True:
                try:
                    with conn.transaction():
                        update = "update psycopg_account set balance = balance + %s where id = %s"
                        conn.execute(update, (-10, source))
                        if first:
                            first = False
                            both.wait()
                        conn.execute(update, (10, target))
                    return
                except (errors.SerializationFailure, errors.DeadlockDetected) as error:
                    retries.append(error.sqlstate)

    threads = [threading.Thread(target=move, args=pair) for pair in ((1, 2), (2, 1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    checks.equal("a victim of class 40", [code[:2] for code in retries], ["40"])
    with psycopg.connect(CONNINFO) as conn:
        found = conn.execute("select balance from psycopg_account order by id").fetchall()
        checks.equal("both moves are done", found, [(100,), (100,)])


def bulk():
    with psycopg.connect(CONNINFO) as conn:
        conn.execute("create table psycopg_bulk (id int primary key, name text, amount numeric(12,2))")
        with conn.cursor() as cursor:
            with cursor.copy("copy psycopg_bulk (id, name, amount) from stdin") as copy:
                for number in range(1000):
                    name = None if number % 2 else f"tab\t{number}"
                    copy.write_row((number, name, decimal.Decimal(number)))
            checks.equal("COPY FROM", cursor.rowcount, 1000)
            with cursor.copy("copy psycopg_bulk (id, name) to stdout") as copy:
                checks.equal("COPY TO", sum(1 for _ in copy.rows()), 1000)
        found = conn.execute("select name, amount from psycopg_bulk where id = 998").fetchone()
        checks.equal("a row of the COPY", found, ("tab\t998", decimal.Decimal("998.00")))


def binary_copy():
    with psycopg.connect(CONNINFO) as conn, conn.cursor() as cursor:
        conn.execute("create table psycopg_binary (id int primary key, name text)")
        with cursor.copy("copy psycopg_binary from stdin (format binary)") as copy:
            copy.set_types(["int4", "text"])
            for number in range(100):
                copy.write_row((number, None if number % 2 else str(number)))
        checks.equal("binary COPY", conn.execute("select count(*) from psycopg_binary").fetchone(), (100,))


def arrays():
    with psycopg.connect(CONNINFO) as conn:
        for _ in range(12):
            found = conn.execute("select id from psycopg_t where id = any(%s)", ([1, 2, 200],)).fetchall()
            checks.equal("= ANY", sorted(found), [(1,), (2,)])


def pool():
    with ConnectionPool(CONNINFO, min_size=1, max_size=1, open=True, check=ConnectionPool.check_connection) as pool:
        for number in range(12):
            with pool.connection() as conn:
                got = conn.execute("select name from psycopg_t where id = %s", (1,)).fetchone()
                checks.equal(f"from the pool, {number}", got, ("größe 1",))
        try:
            with pool.connection() as conn:
                conn.execute("insert into psycopg_t (id) values (%s)", (1,))
        except errors.UniqueViolation as error:
            checks.equal("an error goes through the pool", error.sqlstate, "23505")
        with pool.connection() as conn:
            checks.equal("the pool goes on", conn.execute("select 1").fetchone(), (1,))


LONG = "select count(*) from generate_series(1, 1000000000000)"


def limits():
    with psycopg.connect(CONNINFO, options="-c statement_timeout=50ms") as conn:
        checks.equal("a statement's time is up", sqlstate(lambda: conn.execute(LONG)), "57014")
        conn.rollback()
    with psycopg.connect(CONNINFO, autocommit=True) as conn:
        done = threading.Event()

        def cancel():
            while not done.wait(0.05):
                conn.cancel_safe()

        thread = threading.Thread(target=cancel)
        thread.start()
        checks.equal("a cancelled statement", sqlstate(lambda: conn.execute(LONG)), "57014")
        done.set()
        thread.join()
        checks.equal("after it", conn.execute("select 1").fetchone(), (1,))


for part in (rows, errors_and_rollbacks, conflicts, bulk, binary_copy, arrays, pool, limits):
    try:
        part()
    except Exception as error:
        checks.equal(part.__name__, f"{type(error).__name__}: {error}", "no error")
checks.end()
