"""psycopg 3."""
import re

import corpus
import parameters
import psycopg
from psycopg import pq

DIAGNOSTICS = [
    "severity_nonlocalized", "severity", "sqlstate", "message_primary", "message_detail", "message_hint", "statement_position",
    "internal_position", "internal_query", "context", "schema_name", "table_name", "column_name", "datatype_name", "constraint_name",
    "source_file", "source_line", "source_function",
]


class Client:
    def __init__(self, host, port, user, password, database):
        self.conn = psycopg.connect(host=host, port=port, user=user, password=password, dbname=database, autocommit=True)
        self.conn.prepare_threshold = None
        self.notices = []
        self.conn.add_notice_handler(lambda diagnostic: self.notices.append(fields(diagnostic)))
        self.conn.add_notify_handler(lambda notify: self.notices.append([notify.channel, notify.payload]))
        self.close = self.conn.close

    def login(self):
        names = ["server_version", "server_encoding", "client_encoding", "DateStyle", "IntervalStyle", "TimeZone", "integer_datetimes",
                 "is_superuser", "session_authorization", "application_name", "standard_conforming_strings", "in_hot_standby",
                 "default_transaction_read_only"]
        parameters = {name: text(self.conn.pgconn.parameter_status(name.encode())) for name in names}
        return {"parameters": parameters, "backend_pid": self.conn.info.backend_pid}

    def step(self, step):
        match step["do"]:
            case "query":
                yield from self.attempt(lambda cursor: cursor.execute(step["sql"]))
            case "prepare":
                for number, values in enumerate(step["sets"]):
                    binary = number % 2 == 1
                    yield from self.attempt(
                        lambda cursor: cursor.execute(placeholders(step["sql"]), parameters.read(values), prepare=True, binary=binary))
            case "fetch":
                yield from self.fetch(step["sql"], step["size"])
            case "copy_in":
                yield from self.attempt(lambda cursor: copy_in(cursor, step))
            case "copy_out":
                yield from self.attempt(lambda cursor: copy_out(cursor, step))
            case "pipeline":
                yield from self.pipeline(step["pipeline"])

    def attempt(self, execute):
        """Runs something on a cursor and tells all its results, or its error."""
        with self.conn.cursor() as cursor:
            try:
                copied = execute(cursor)
                yield from [copied] if isinstance(copied, dict) else self.results(cursor)
            except psycopg.Error as error:
                yield self.failure(error)

    def results(self, cursor):
        while True:
            yield {**facts(cursor.pgresult), **self.session()}
            if not cursor.nextset():
                return

    def fetch(self, sql, size):
        try:
            with self.conn.transaction(), self.conn.cursor("corpus_cursor") as cursor:
                cursor.execute(sql)
                while batch := cursor.fetchmany(size):
                    yield {"fetched": len(batch), **facts(cursor.pgresult), **self.session()}
        except psycopg.Error as error:
            yield self.failure(error)

    def pipeline(self, statements):
        """All statements are sent before the first answer is read; an error aborts the rest up to the sync."""
        cursors = []
        try:
            with self.conn.pipeline():
                for sql, values in statements:
                    cursors.append(self.conn.cursor())
                    cursors[-1].execute(placeholders(sql), parameters.read(values))
        except psycopg.Error as error:
            yield self.failure(error)
        for cursor in cursors:
            if cursor.pgresult and cursor.pgresult.status in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
                yield from self.results(cursor)

    def failure(self, error):
        return {"error": [type(error).__name__, str(error), fields(error.diag)], **self.session()}

    def session(self):
        notices, self.notices[:] = list(self.notices), []
        return {"transaction": self.conn.info.transaction_status.name, "time_zone": self.conn.info.parameter_status("TimeZone"), "notices": notices}


def placeholders(sql):
    """`$1` as psycopg writes it."""
    return re.sub(r"\$\d+", "%s", sql.replace("%", "%%"))


def copy_in(cursor, step):
    with cursor.copy(step["sql"]) as copy:
        copy.write(step["data"])
    return {"status": cursor.statusmessage}


def copy_out(cursor, step):
    with cursor.copy(step["sql"]) as copy:
        data = b"".join(bytes(data) for data in copy)
    return {"copied": corpus.short(data), "status": cursor.statusmessage}


def text(value):
    return value.decode() if value is not None else None


def fields(diagnostic):
    """All fields of an error or a notice."""
    return [getattr(diagnostic, name) for name in DIAGNOSTICS]


def own(number):
    """Ids of tables and types that the cases make differ from run to run."""
    return number if number < 16384 else "own"


def facts(result):
    columns = [
        [text(result.fname(i)), own(result.ftable(i)), result.ftablecol(i), result.fformat(i), own(result.ftype(i)), result.fmod(i), result.fsize(i)]
        for i in range(result.nfields)
    ]
    rows = [[corpus.short(result.get_value(row, column)) for column in range(result.nfields)] for row in range(result.ntuples)]
    return {"columns": columns, "rows": rows, "status": text(result.command_status), "kind": result.status, "affected": result.command_tuples}


if __name__ == "__main__":
    corpus.run(Client)
