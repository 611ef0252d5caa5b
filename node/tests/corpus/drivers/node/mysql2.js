// node mysql2.
const mysql = require('mysql2');
const corpus = require('./corpus');

class Client {
  constructor(conn, options) {
    this.conn = conn;
    this.options = options;
  }

  login() {
    const { serverVersion, characterSet, connectionId } = this.conn._handshakePacket;
    return { server_version: serverVersion, server_charset: characterSet, connection_id: connectionId };
  }

  async step(step) {
    switch (step.do) {
      case 'query':
        return this.attempt((done) => this.conn.query({ sql: step.sql, rowsAsArray: true }, done));
      case 'prepare': {
        const results = [];
        for (const set of step.sets) {
          results.push(...await this.attempt((done) => this.conn.execute({ sql: step.sql, rowsAsArray: true }, corpus.parameters(set), done)));
        }
        return results;
      }
      case 'ping':
        return this.attempt((done) => this.conn.ping(done));
      case 'reset':
        return this.attempt((done) => this.conn.reset(done));
      case 'change_user':
        return this.attempt((done) => this.conn.changeUser(this.options, done));
    }
  }

  // Results arrive as one value, or as an array of them when there are several.
  attempt(start) {
    return new Promise((resolve) => {
      start((error, rows, fields) => {
        if (error) return resolve([{ error: [error.errno, error.sqlState, error.sqlMessage || error.message] }]);
        const several = Array.isArray(fields) && fields.some((each) => each === undefined || Array.isArray(each));
        resolve(several ? rows.map((each, index) => result(each, fields[index])) : [result(rows, fields)]);
      });
    });
  }

  close() {
    return new Promise((resolve) => { this.conn.end(resolve); });
  }
}

const SESSION_STATE_CHANGED = 0x4000;

function result(rows, fields) {
  if (!fields) {
    const { stateChanges, serverStatus, ...ok } = rows || {};
    return { ok, status: serverStatus & ~SESSION_STATE_CHANGED, session_state: [stateChanges, serverStatus & SESSION_STATE_CHANGED] };
  }
  const columns = fields.map((f) => [f.name, f.orgName, f.table, f.orgTable, f.db || f.schema, f.characterSet, f.columnLength, f.columnType, f.flags, f.decimals]);
  return { columns, rows: rows.map((row) => row.map(corpus.short)) };
}

corpus.run((options) => new Promise((resolve, reject) => {
  // JSON stays text: the node does not offer MariaDB's extended metadata, by which mysql2 would tell it from other text.
  const values = { supportBigNumbers: true, bigNumberStrings: true, dateStrings: true, jsonStrings: true };
  const conn = mysql.createConnection({ ...options, ...values, multipleStatements: true, flags: ['-IGNORE_SPACE'] });
  conn.connect((error) => (error ? reject(error) : resolve(new Client(conn, options))));
}));
