"""SQLAlchemy over psycopg 3: run with the server's address in PGHOST and PGPORT."""

import datetime
import decimal
import os

import sqlalchemy as sa
from sqlalchemy.orm import Session, declarative_base

from checks import Checks

URL = f"postgresql+psycopg://ann@{os.environ['PGHOST']}:{os.environ['PGPORT']}/bank"
checks = Checks(f"sqlalchemy {sa.__version__}")
# hstore is looked for in the system catalog, which Rialto does not have.
engine = sa.create_engine(URL, use_native_hstore=False, pool_size=1, max_overflow=0)

Base = declarative_base()


class Item(Base):
    __tablename__ = "sa_item"
    id = sa.Column(sa.Integer, primary_key=True, autoincrement=False)
    name = sa.Column(sa.Text)
    amount = sa.Column(sa.Numeric(12, 2))
    at = sa.Column(sa.DateTime)
    ok = sa.Column(sa.Boolean)
    raw = sa.Column(sa.LargeBinary)


def rows():
    # No checkfirst: it asks the system catalog.
    Base.metadata.create_all(engine, checkfirst=False)
    with Session(engine) as session:
        for number in range(12):
            null = number % 4 == 3
            session.add(
                Item(
                    id=number,
                    name=None if null else f"größe {number}",
                    amount=None if null else decimal.Decimal(number),
                    at=None if null else datetime.datetime(2026, 1, 31, 12, 30, number),
                    ok=None if null else number % 2 == 0,
                    raw=None if null else bytes([0, number, 255]),
                )
            )
            session.commit()
        for number in range(12):
            item = session.get(Item, number)
            null = number % 4 == 3
            got = (item.name, item.amount, item.at, item.ok, item.raw)
            expected = (
                f"größe {number}",
                decimal.Decimal(number),
                datetime.datetime(2026, 1, 31, 12, 30, number),
                number % 2 == 0,
                bytes([0, number, 255]),
            )
            checks.equal(f"row {number}", got, (None,) * 5 if null else expected)
            session.rollback()
        item = session.get(Item, 1)
        item.name = "changed"
        session.commit()
        checks.equal("an update", session.scalars(sa.select(Item.name).where(Item.id == 1)).one(), "changed")
        session.delete(item)
        session.commit()
        checks.equal("a delete", session.get(Item, 1), None)


def errors():
    with engine.connect() as conn:
        for number in range(12):
            conn.execute(sa.text("select name from sa_item where id = :id"), {"id": number}).all()
        for sql, code in (("insert into sa_item (id) values (2)", "23505"), ("selec 1", "42601")):
            try:
                conn.execute(sa.text(sql))
                checks.equal(sql, None, code)
            except sa.exc.DBAPIError as error:
                checks.equal(sql, error.orig.sqlstate, code)
            conn.rollback()
        checks.equal("after a rollback", conn.execute(sa.text("select 1")).scalar(), 1)

    class Mine(Exception):
        pass

    try:
        with engine.begin() as conn:
            for _ in range(12):
                conn.execute(sa.text("select name from sa_item where id = :id"), {"id": 2}).all()
            raise Mine
    except Exception as error:
        checks.equal("the application's own error", type(error).__name__, "Mine")
    with Session(engine) as session:
        with session.begin():
            try:
                with session.begin_nested():
                    session.execute(sa.insert(Item).values(id=2))
            except sa.exc.IntegrityError as error:
                checks.equal("an error behind a savepoint", error.orig.sqlstate, "23505")
            session.execute(sa.insert(Item).values(id=50))
    with engine.connect() as conn:
        checks.equal("what is left", conn.scalar(sa.text("select count(*) from sa_item")), 12)


def bulk():
    with engine.begin() as conn:
        conn.execute(sa.insert(Item), [{"id": number, "name": f"bulk {number}"} for number in range(1000, 2000)])
    with engine.connect() as conn:
        checks.equal("many rows", conn.scalar(sa.text("select count(*) from sa_item where id >= 1000")), 1000)


def levels():
    with engine.connect().execution_options(isolation_level="SERIALIZABLE") as conn:
        checks.equal("an isolation level", conn.execute(sa.text("select 1")).scalar(), 1)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
        checks.equal("autocommit", conn.execute(sa.text("select 1")).scalar(), 1)


for part in (rows, errors, bulk, levels):
    try:
        part()
    except Exception as error:
        checks.equal(part.__name__, f"{type(error).__name__}: {error}", "no error")
checks.end()
