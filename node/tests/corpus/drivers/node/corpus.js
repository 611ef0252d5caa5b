// Takes the two clients of a driver through the cases; see ../README.md.
const crypto = require('crypto');
const fs = require('fs');

// A value with its type, as text; long ones by length and digest.
function short(value) {
  if (Buffer.isBuffer(value)) return digest(`bytes ${value.toString('hex')}`);
  if (value instanceof Date) return `date ${Number.isNaN(value.getTime()) ? 'invalid' : value.toISOString()}`;
  return digest(`${typeof value} ${typeof value === 'object' ? JSON.stringify(value) : value}`);
}

function digest(text) {
  return text.length <= 1000 ? text : `${text.length} characters: ${crypto.createHash('md5').update(text).digest('hex')}`;
}

const READERS = {
  null: () => null,
  bytes: (value) => Buffer.from(value, 'hex'),
};

function parameters(list) {
  return list.map(([kind, value]) => (READERS[kind] ? READERS[kind](value) : value));
}

// `connect(options)` resolves to a client with `login()`, `step(step)` (an array of results) and `close()`.
async function run(connect) {
  const [host, port, user, password, database, file] = process.argv.slice(2);
  const options = { host, port: Number(port), user, password, database };
  const say = (line) => process.stdout.write(`${JSON.stringify(line, (_, value) => (typeof value === 'bigint' ? `${value}n` : value))}\n`);
  const open = async (name) => {
    const client = await connect(options);
    say({ login: name, ...client.login() });
    return client;
  };
  const cases = JSON.parse(fs.readFileSync(file, 'utf8'));
  const clients = { A: await open('A'), B: await open('B') };
  for (const one of cases) {
    for (const name of ['A', 'B']) {
      const steps = [];
      for (const step of one.steps) steps.push(await clients[name].step(step));
      say({ case: one.name, client: name, steps });
      if (one.pins) {
        await clients[name].close();
        clients[name] = await open(name);
      }
    }
  }
  await Promise.all(Object.values(clients).map((client) => client.close()));
}

module.exports = { run, short, parameters };
