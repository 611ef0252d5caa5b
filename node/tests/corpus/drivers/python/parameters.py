"""Parameters of the cases as Python values."""
import datetime
import decimal
import uuid

READERS = {
    "null": lambda value: None,
    "bool": bool,
    "int": int,
    "bigint": int,
    "float": float,
    "decimal": decimal.Decimal,
    "text": str,
    "bytes": bytes.fromhex,
    "date": datetime.date.fromisoformat,
    "time": datetime.time.fromisoformat,
    "timestamp": datetime.datetime.fromisoformat,
    "timestamptz": datetime.datetime.fromisoformat,
    "uuid": uuid.UUID,
    "ints": list,
    "texts": list,
}


def read(parameters):
    return [READERS[kind](value) for kind, value in parameters]
