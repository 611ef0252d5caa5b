"""PyMySQL. It has no prepared statements: parameters are put into the text."""
import corpus
import parameters
import pymysql
from pymysql.constants import CLIENT


class Client:
    def __init__(self, host, port, user, password, database):
        self.conn = pymysql.connect(
            host=host, port=port, user=user, password=password, database=database,
            autocommit=True, client_flag=CLIENT.MULTI_STATEMENTS | CLIENT.MULTI_RESULTS,
        )
        self.close = self.conn.close

    def login(self):
        conn = self.conn
        return {
            "server_version": conn.server_version, "connection_id": conn.server_thread_id[0],
            "server_charset": conn.server_language, "status": conn.server_status,
        }

    def step(self, step):
        match step["do"]:
            case "query":
                yield from self.execute(step["sql"], None)
            case "prepare":
                for values in step["sets"]:
                    yield from self.execute(step["sql"].replace("%", "%%").replace("?", "%s"), parameters.read(values))
            case "fetch":
                yield from self.execute(step["sql"], None, pymysql.cursors.SSCursor)
            case "ping":
                self.conn.ping(reconnect=False)
                yield {}

    def execute(self, sql, values, cursor=None):
        with self.conn.cursor(cursor) as cursor:
            try:
                cursor.execute(sql, values)
                while True:
                    yield {"rows": corpus.rows(cursor.fetchall()), "count": cursor.rowcount, **self.facts(cursor._result)}
                    if not cursor.nextset():
                        return
            except pymysql.Error as error:
                yield {"error": [type(error).__name__, *error.args]}

    def facts(self, result):
        """What PyMySQL knows of a result beside its rows."""
        columns = [
            [f.name, f.org_name, f.table_name, f.org_table, f.db, f.catalog, f.charsetnr, f.length, f.type_code, f.flags, f.scale]
            for f in getattr(result, "fields", [])
        ]
        return {
            "columns": columns, "affected": result.affected_rows, "insert_id": result.insert_id, "status": result.server_status,
            "warnings": result.warning_count, "message": corpus.short(result.message), "more": result.has_next,
        }


if __name__ == "__main__":
    corpus.run(Client)
