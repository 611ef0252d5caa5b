"""psycopg 3 through a node: select, insert, transaction, prepared, pipeline, COPY, failing statement."""
import sys
import psycopg

host, port = sys.argv[1], int(sys.argv[2])
conn = psycopg.connect(host=host, port=port, user="demo", password="demo", dbname="demo", autocommit=True)
conn.execute("CREATE TABLE by_psycopg (id INT PRIMARY KEY, v TEXT)")
conn.execute("INSERT INTO by_psycopg VALUES (%s, %s)", (1, "zwei ü"))
try:
    with conn.transaction():
        conn.execute("DELETE FROM by_psycopg")
        raise RuntimeError
except RuntimeError:
    pass
for _ in range(8):  # the sixth is prepared by name
    assert conn.execute("SELECT v FROM by_psycopg WHERE id = %s", (1,), prepare=True).fetchone() == ("zwei ü",)
try:
    conn.execute("SELECT nothing FROM nowhere")
    raise SystemExit("a failing statement did not fail")
except psycopg.errors.UndefinedTable:
    pass
with conn.pipeline():
    cursors = [conn.execute("SELECT %s::int4 + 1", (n,)) for n in range(20)]
assert [c.fetchone()[0] for c in cursors] == list(range(1, 21))
with conn.cursor().copy("COPY by_psycopg FROM STDIN") as copy:
    for n in range(2, 2002):
        copy.write_row((n, "x" * 100))
assert conn.execute("SELECT count(*) FROM by_psycopg").fetchone() == (2001,)
with conn.cursor().copy("COPY by_psycopg TO STDOUT") as copy:
    assert sum(len(block) for block in copy) > 200000
assert conn.info.parameter_status("server_version").startswith("15")
try:
    psycopg.connect(host=host, port=port, user="demo", password="wrong", dbname="demo")
    raise SystemExit("a wrong password was accepted")
except psycopg.OperationalError as error:
    assert 'password authentication failed for user "demo"' in str(error), error
print("psycopg works")
