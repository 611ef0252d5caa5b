// node-postgres with its cursor and COPY companions.
const { pipeline } = require('stream/promises');
const { Readable } = require('stream');
const pg = require('pg');
const Cursor = require('pg-cursor');
const copy = require('pg-copy-streams');
const corpus = require('./corpus');

const FIELDS = ['severity', 'code', 'message', 'detail', 'hint', 'position', 'internalPosition', 'internalQuery', 'where', 'schema', 'table', 'column', 'dataType', 'constraint', 'file', 'line', 'routine'];
const fields = (error) => FIELDS.map((name) => error[name]);
// Values as the server wrote them.
const asText = { getTypeParser: () => (value) => value };
const own = (id) => (id < 16384 ? id : 'own');

class Client {
  constructor(conn) {
    this.conn = conn;
    this.notices = [];
    conn.on('notice', (notice) => this.notices.push(fields(notice)));
    conn.on('notification', ({ channel, payload }) => this.notices.push([channel, payload]));
  }

  login() {
    return { backend_pid: this.conn.processID };
  }

  async step(step) {
    const results = [];
    try {
      for await (const each of this[step.do](step)) results.push(each);
    } catch (error) {
      results.push({ error: fields(error) });
    }
    return [...results, { notices: this.notices.splice(0) }];
  }

  async* query({ sql }) {
    const answer = await this.conn.query({ text: sql, rowMode: 'array', types: asText });
    for (const each of Array.isArray(answer) ? answer : [answer]) yield result(each);
  }

  async* prepare({ sql, sets }) {
    for (const set of sets) {
      yield result(await this.conn.query({ name: sql, text: sql, values: corpus.parameters(set), rowMode: 'array', types: asText }));
    }
  }

  async* fetch({ sql, size }) {
    const cursor = this.conn.query(new Cursor(sql, [], { rowMode: 'array', types: asText }));
    try {
      for (let rows = await cursor.read(size); rows.length > 0; rows = await cursor.read(size)) yield rows.map((row) => row.map(corpus.short));
    } finally {
      await cursor.close();
    }
  }

  async* copy_in({ sql, data }) {
    const stream = this.conn.query(copy.from(sql));
    await pipeline(Readable.from([Buffer.from(data)]), stream);
    yield { copied: stream.rowCount };
  }

  async* copy_out({ sql }) {
    const chunks = [];
    for await (const chunk of this.conn.query(copy.to(sql))) chunks.push(chunk);
    yield corpus.short(Buffer.concat(chunks));
  }

  close() {
    return this.conn.end();
  }
}

function result({ command, rowCount, fields: columns, rows }) {
  return {
    command,
    rowCount,
    columns: columns.map((f) => [f.name, own(f.tableID), f.columnID, own(f.dataTypeID), f.dataTypeSize, f.dataTypeModifier, f.format]),
    rows: rows.map((row) => row.map(corpus.short)),
  };
}

corpus.run(async (options) => {
  const conn = new pg.Client(options);
  conn.on('error', () => {}); // a lost connection shows in the next statement
  await conn.connect();
  return new Client(conn);
});
