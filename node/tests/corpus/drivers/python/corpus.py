"""Takes the two clients of a driver through the cases; see ../README.md."""
import hashlib
import json
import sys


def short(value):
    """A value with its type, as text; long ones by length and digest."""
    text = repr(sorted(value) if isinstance(value, (set, frozenset)) else value)
    if len(text) <= 1000:
        return text
    return f"{type(value).__name__} of {len(value)}: {hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()}"


def rows(rows):
    return [[short(value) for value in row] for row in rows]


def say(line):
    print(json.dumps(line, default=short), flush=True)


def run(client_class):
    """`client_class(host, port, user, password, database)` connects; it has `login`, `step(step)` and `close()`."""
    host, port, user, password, database, path = sys.argv[1:]

    def connect(name):
        client = client_class(host, int(port), user, password, database)
        say({"login": name, **client.login()})
        return client

    with open(path, encoding="utf-8") as file:
        cases = json.load(file)
    clients = {name: connect(name) for name in "AB"}
    for case in cases:
        for name in "AB":
            steps = [list(clients[name].step(step)) for step in case["steps"]]
            say({"case": case["name"], "client": name, "steps": steps})
            if case["pins"]:
                clients[name].close()
                clients[name] = connect(name)
