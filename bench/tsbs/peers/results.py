"""Results in one form for all systems; the same as in src/digest.rs."""
import datetime
import decimal
import hashlib
import math


def text(value):
    """Null and NaN are empty, numbers have nine digits, times no fractions of a second."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float, decimal.Decimal)):
        number = float(value)
        if math.isnan(number):
            return ""
        return "0" if number == 0 else f"{number:.9g}"
    if isinstance(value, datetime.datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%S")
    if isinstance(value, datetime.date):
        return value.strftime("%Y-%m-%dT00:00:00")
    return str(value)


def lines(rows, key=None):
    """A line for each row, sorted; only with the column `key` if there is one."""
    if key is not None:
        rows = [[row[key]] for row in rows]
    return sorted(",".join(text(value) for value in row) for row in rows)


def digest(of_lines):
    """The first digits of the digest of lines."""
    return hashlib.sha256(("\n".join(of_lines) + "\n").encode()).hexdigest()[:16]
