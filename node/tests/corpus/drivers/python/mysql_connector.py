"""mysql-connector-python, the pure Python implementation."""
import corpus
import mysql.connector
import parameters


class Client:
    def __init__(self, host, port, user, password, database):
        self.conn = mysql.connector.connect(
            host=host, port=port, user=user, password=password, database=database,
            autocommit=True, use_pure=True, get_warnings=False, ssl_disabled=True,
        )
        self.account = {"username": user, "password": password, "database": database}
        self.close = self.conn.close

    def login(self):
        return {"server_version": self.conn.server_info, "connection_id": self.conn.connection_id}

    def step(self, step):
        match step["do"]:
            case "query":
                yield from self.query(step["sql"])
            case "prepare":
                yield from self.prepare(step)
            case "ping":
                self.conn.cmd_ping()
                yield {}
            case "reset":
                yield self.command(self.conn.cmd_reset_connection)
            case "change_user":
                yield self.command(lambda: self.conn.cmd_change_user(**self.account))

    def command(self, run):
        try:
            run()
            return {}
        except mysql.connector.Error as error:
            return failure(error)

    def query(self, sql):
        """The protocol's answers as the connector keeps them, one by one."""
        try:
            for result in self.conn.cmd_query_iter(sql):
                if "columns" in result:
                    rows, end = self.conn.get_rows(raw=True)
                    yield {"columns": [list(map(corpus.short, column)) for column in result["columns"]], "rows": corpus.rows(rows), "end": end}
                else:
                    yield {"ok": result}
        except mysql.connector.Error as error:
            yield failure(error)

    def prepare(self, step):
        cursor = self.conn.cursor(prepared=True)
        try:
            for values in step["sets"]:
                cursor.execute(step["sql"], parameters.read(values))
                rows = corpus.rows(cursor.fetchall()) if cursor.with_rows else None
                yield {"columns": cursor.description, "rows": rows, "affected": cursor.rowcount, "insert_id": cursor.lastrowid, "warnings": cursor.warning_count}
        except mysql.connector.Error as error:
            yield failure(error)
        finally:
            cursor.close()


def failure(error):
    return {"error": [type(error).__name__, error.errno, error.sqlstate, error.msg]}


if __name__ == "__main__":
    corpus.run(Client)
