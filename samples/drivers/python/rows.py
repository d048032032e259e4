"""The rows that the drivers write and read."""

import datetime
import decimal

COLUMNS = """(id int primary key, small smallint, big bigint, name text,
    amount numeric(12,2), at timestamp, ok boolean, raw bytea, ratio double precision, day date)"""


def row(number):
    if number % 4 == 3:
        return (number,) + (None,) * 9
    return (
        number,
        number,
        number << 40,
        f"größe {number}",
        decimal.Decimal(number) + decimal.Decimal("0.25"),
        datetime.datetime(2026, 1, 31, 12, 30, number % 60, 123456),
        number % 2 == 0,
        bytes([0, number % 256, 255]),
        number / 4,
        datetime.date(2026, 1, 1 + number % 28),
    )
