"""PyMySQL through a node: select, insert, transaction, parameters, failing statement."""
import sys
import pymysql

host, port = sys.argv[1], int(sys.argv[2])
conn = pymysql.connect(host=host, port=port, user="demo", password="demo", database="demo", autocommit=True)
cur = conn.cursor()
cur.execute("CREATE TABLE by_pymysql (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(20))")
assert cur.execute("INSERT INTO by_pymysql (v) VALUES (%s), (%s)", ("one", "zwei ü")) == 2
assert cur.lastrowid == 1
conn.begin()
cur.execute("DELETE FROM by_pymysql")
conn.rollback()
cur.execute("SELECT id, v FROM by_pymysql ORDER BY id")
assert cur.fetchall() == ((1, "one"), (2, "zwei ü"))
try:
    cur.execute("SELECT nothing FROM nowhere")
    raise SystemExit("a failing statement did not fail")
except pymysql.err.ProgrammingError as error:
    assert error.args[0] == 1146, error
cur.execute("SELECT REPEAT('x', 3000000)")
assert len(cur.fetchone()[0]) == 3000000
try:
    pymysql.connect(host=host, port=port, user="demo", password="wrong")
    raise SystemExit("a wrong password was accepted")
except pymysql.err.OperationalError as error:
    assert error.args[0] == 1045, error
print("PyMySQL works")
