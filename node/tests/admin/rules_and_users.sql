# Validation at LOAD, mirrors of users and rules.

INSERT INTO mysql_query_rules (active, match_digest, destination_hostgroup, apply) VALUES (1, '^SELECT.*FOR UPDATE', 10, 1), (1, '^SELECT', 20, 1), (0, '(', 5, 1)
----
ok 3

SELECT rule_id, active, match_digest, flagIN, re_modifiers FROM mysql_query_rules
----
[rule_id | active | match_digest | flagIN | re_modifiers]
1 | 1 | ^SELECT.*FOR UPDATE | 0 | CASELESS
2 | 1 | ^SELECT | 0 | CASELESS
3 | 0 | ( | 0 | CASELESS

LOAD MYSQL QUERY RULES TO RUNTIME
----
ok 0: revision 2, …

SELECT rule_id FROM runtime_mysql_query_rules
----
[rule_id]
1
2

UPDATE mysql_query_rules SET active=1 WHERE rule_id=3
----
ok 1

LOAD MYSQL QUERY RULES TO RUNTIME
----
error 1045 28000: ProxySQL Admin Error: LOAD MYSQL QUERY RULES TO RUNTIME refused: …3…match_digest…

UPDATE mysql_query_rules SET match_digest='x', cache_ttl=100, delay=5 WHERE rule_id=3
----
ok 1

LOAD MYSQL QUERY RULES TO RUNTIME DRY RUN
----
ok 0: dry run: …
warning: …cache_ttl…
warning: …delay…

LOAD MYSQL QUERY RULES TO RUNTIME COMMENT 'cache'
----
ok 0: revision 3, …
warning: …cache_ttl…
warning: …delay…

SHOW WARNINGS
----
[Level | Code | Message]
Warning | 1105 | …cache_ttl…
Warning | 1105 | …delay…

INSERT INTO mysql_users (username, password, default_hostgroup) VALUES ('bob', mysql_native_password('secret'), 10)
----
ok 1

LOAD MYSQL USERS TO RUNTIME
----
ok 0: revision 4, …

SELECT username, password, frontend, backend FROM runtime_mysql_users ORDER BY frontend
----
[username | password | frontend | backend]
bob | *14E65567ABDB5135D0CFD9A70B3032C179A49EE7 | 0 | 1
bob | *14E65567ABDB5135D0CFD9A70B3032C179A49EE7 | 1 | 0

INSERT INTO mysql_replication_hostgroups VALUES (10, 20, 'read_only', ''), (20, 30, 'read_only', '')
----
ok 2

LOAD MYSQL SERVERS TO RUNTIME
----
error 1045 28000: ProxySQL Admin Error: LOAD MYSQL SERVERS TO RUNTIME refused: …hostgroup 20…

# EXPLAIN RULES (observability-and-operations.md 6.3). The data plane of this test has no configuration.

EXPLAIN MYSQL RULES 'SELECT 1' USER 'app'
----
error 1045 28000: ProxySQL Admin Error: unknown USER 'app': runtime_mysql_users has no active row for it

EXPLAIN MYSQL RULES 'SELECT 1' CLIENT 'somewhere'
----
error 1045 28000: ProxySQL Admin Error: CLIENT 'somewhere' is not an IP address

EXPLAIN PGSQL RULES 'SELECT 1' PROXY 'localhost:6133'
----
error 1045 28000: ProxySQL Admin Error: PROXY 'localhost' is not an IP address

EXPLAIN MYSQL RULES 'SELECT 1'
----
[step | kind | rule_id | result | detail | effect]
1 | parse | NULL |  | digest 0x1C46AE529DD5A40E: SELECT ? | plain read
2 | default | NULL | not matched | no rule names a hostgroup, and the default hostgroup is the user's: say USER '…' | no hostgroup

EXPLAIN RULES
----
error 1045 28000: ProxySQL Admin Error: say EXPLAIN [MYSQL | PGSQL] RULES '<statement>' [USER 'u'] [SCHEMA 's'] [CLIENT 'ip'] [PROXY 'ip[:port]']
