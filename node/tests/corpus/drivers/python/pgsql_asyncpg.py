"""asyncpg: everything with parameters is the extended protocol with binary values."""
import asyncio

import asyncpg
import corpus
import parameters

FIELDS = [
    "severity_en", "sqlstate", "message", "detail", "hint", "position", "internal_position", "internal_query", "context", "schema_name",
    "table_name", "column_name", "data_type_name", "constraint_name", "server_source_filename", "server_source_line", "server_source_function",
]


class Client:
    loop = asyncio.new_event_loop()

    def __init__(self, host, port, user, password, database):
        self.conn = self.run(asyncpg.connect(host=host, port=port, user=user, password=password, database=database))
        self.notices = []
        self.conn.add_log_listener(lambda _, notice: self.notices.append(fields(notice)))

    def run(self, awaitable):
        return self.loop.run_until_complete(awaitable)

    def close(self):
        self.run(self.conn.close())

    def login(self):
        settings = self.conn.get_settings()
        names = ["server_version", "client_encoding", "DateStyle", "TimeZone", "is_superuser", "session_authorization", "application_name"]
        return {"version": list(self.conn.get_server_version()), "settings": {n: getattr(settings, n, None) for n in names}, "backend_pid": self.conn.get_server_pid()}

    def step(self, step):
        match step["do"]:
            case "query":
                work = self.query(step["sql"])
            case "prepare":
                work = self.prepare(step)
            case "fetch":
                work = self.fetch(step["sql"], step["size"])
        results = []
        try:
            self.run(self.collect(work, results))
        except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            results.append({"error": [type(error).__name__, str(error), fields(error)]})
        notices, self.notices[:] = list(self.notices), []
        return [*results, {"notices": notices, "in_transaction": self.conn.is_in_transaction()}]

    async def collect(self, work, results):
        async for result in work:
            results.append(result)

    async def query(self, sql):
        yield {"status": await self.conn.execute(sql)}

    async def prepare(self, step):
        statement = await self.conn.prepare(step["sql"])
        yield {
            "columns": [[a.name, a.type.oid if a.type.oid < 16384 else "own", a.type.name, a.type.kind] for a in statement.get_attributes()],
            "parameters": [p.name for p in statement.get_parameters()],
        }
        for values in step["sets"]:
            rows = await statement.fetch(*parameters.read(values))
            yield {"rows": corpus.rows(rows), "status": statement.get_statusmsg()}

    async def fetch(self, sql, size):
        async with self.conn.transaction():
            cursor = await self.conn.cursor(sql)
            while rows := await cursor.fetch(size):
                yield {"rows": corpus.rows(rows)}


def fields(error):
    return [getattr(error, name, None) for name in FIELDS]


if __name__ == "__main__":
    corpus.run(Client)
