"""Reads exported tables with DuckDB and polars, and compares the formats with each other and with results.db."""

import json
import math
import sqlite3
import sys

import duckdb
import polars

folder = sys.argv[1]
schemas = {format: json.load(open(f"{folder}/{format}/schema.json")) for format in ("parquet", "csv", "json")}
database = sqlite3.connect(f"{folder}/results/results.db")
KINDS = {"integer": polars.Int64, "real": polars.Float64, "text": polars.String, "bytes": polars.Binary}
TYPES = {"integer": "BIGINT", "real": "DOUBLE", "text": "VARCHAR", "bytes": "BLOB"}


def same(left, right):
    if isinstance(left, float) and isinstance(right, (int, float)):
        return math.isclose(left, right, rel_tol=1e-15) or left == right
    return left == right


def as_text(value):
    return value.hex() if isinstance(value, bytes) else value


names = [table["table"] for table in schemas["parquet"]["tables"]]
assert len(set(names)) == len(names) > 30, names
assert all([table["table"] for table in schema["tables"]] == names for schema in schemas.values())
cells = 0
for of_parquet, of_csv, of_json in zip(*(schema["tables"] for schema in schemas.values())):
    name, columns = of_parquet["table"], of_parquet["columns"]
    path = f"{folder}/parquet/{of_parquet['file']}"
    frame = polars.read_parquet(path)
    assert frame.columns == [column["name"] for column in columns], name
    assert frame.dtypes == [KINDS[column["type"]] for column in columns], (name, frame.dtypes)
    assert frame.height == of_parquet["rows"] == of_csv["rows"] == of_json["rows"], name
    metadata = polars.read_parquet_metadata(path)
    assert metadata["kendall.export_version"] == "1" and metadata["kendall.table"] == name, metadata
    assert json.loads(metadata["kendall.units"]) == {c["name"]: c["unit"] for c in columns if c["unit"]}, name

    described = duckdb.sql(f"DESCRIBE SELECT * FROM '{path}'").fetchall()
    assert [row[1] for row in described] == [TYPES[column["type"]] for column in columns], (name, described)
    rows = duckdb.sql(f"SELECT * FROM '{path}'").fetchall()
    assert rows == frame.rows(), name

    objects = json.load(open(f"{folder}/json/{of_json['file']}"))
    assert len(objects) == len(rows)
    for row, read in zip(rows, objects):
        assert list(read) == frame.columns or sorted(read) == sorted(frame.columns), name
        for column, value in zip(frame.columns, row):
            assert same(as_text(value), read[column]), (name, column, value, read[column])
            cells += 1
    of_file = polars.read_csv(f"{folder}/csv/{of_csv['file']}", infer_schema=False)
    assert of_file.columns == frame.columns and of_file.height == frame.height, name
    for row, read in zip(rows, of_file.rows()):
        for column, value, text in zip(columns, row, read):
            if value is None:
                assert not text, (name, column, text)
            elif column["type"] in ("integer", "real"):
                assert same(float(value), float(text)), (name, column, value, text)
    if name.startswith("stored/"):
        count, = database.execute(f"SELECT count(*) FROM {name.removeprefix('stored/')}").fetchone()
        assert count == len(rows), name
assert cells > 1000, cells
operations = duckdb.sql(f"SELECT sum(completed) FROM '{folder}/parquet/stored/operations.parquet'").fetchall()
assert operations == database.execute("SELECT sum(completed) FROM operations").fetchall()
