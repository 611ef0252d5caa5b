# Rows, layers and mirrors of MYSQL SERVERS.

SELECT count(*) FROM mysql_servers
----
[count(*)]
0

INSERT INTO mysql_servers (hostgroup_id, hostname, port) VALUES (10, 'db1', 3306), (20, 'db2', 3306), (20, 'db3', 3307)
----
ok 3

SELECT hostgroup_id, hostname, port, status, weight, max_connections, comment FROM main.mysql_servers ORDER BY 1, 2
----
[hostgroup_id | hostname | port | status | weight | max_connections | comment]
10 | db1 | 3306 | ONLINE | 1 | 1000 | 
20 | db2 | 3306 | ONLINE | 1 | 1000 | 
20 | db3 | 3307 | ONLINE | 1 | 1000 | 

INSERT INTO mysql_servers (hostgroup_id, hostname, port) VALUES (10, 'db1', 3306)
----
error 1045 28000: ProxySQL Admin Error: UNIQUE constraint failed: mysql_servers.hostgroup_id, mysql_servers.hostname, mysql_servers.port

INSERT INTO mysql_servers (hostgroup_id, hostname, port) VALUES (10, 'db1', 70000)
----
error 1045 28000: ProxySQL Admin Error: CHECK constraint failed: port >= 0 AND port <= 65535

UPDATE mysql_servers SET weight=5 WHERE hostgroup_id=20
----
ok 2

REPLACE INTO mysql_servers (hostgroup_id, hostname, port, comment) VALUES (10, 'db1', 3306, "a ""comment""")
----
ok 1

SELECT count(*) FROM runtime_mysql_servers
----
[count(*)]
0

LOAD MYSQL SERVERS TO RUNTIME
----
ok 0: revision 2, …

SELECT m.hostname, m.weight, r.weight, m.comment FROM mysql_servers m JOIN main.runtime_mysql_servers r USING (hostgroup_id, hostname, port) ORDER BY 1
----
[hostname | weight | weight | comment]
db1 | 1 | 1 | a "comment"
db2 | 5 | 5 | 
db3 | 5 | 5 | 

SELECT count(*) FROM disk.mysql_servers
----
[count(*)]
0

SAVE MYSQL SERVERS TO DISK
----
ok 0: …

DELETE FROM mysql_servers
----
ok 3

LOAD MYSQL SERVERS TO RUNTIME
----
error 1045 28000: ProxySQL Admin Error: LOAD MYSQL SERVERS TO RUNTIME would remove all 3 rows of mysql_servers; add FORCE to confirm

LOAD MYSQL SERVERS FROM DISK
----
ok 0: …

SELECT mysql_servers.hostname FROM disk.mysql_servers EXCEPT SELECT hostname FROM mysql_servers
----
[hostname]

INSERT INTO disk.mysql_servers (hostgroup_id, hostname) SELECT hostgroup_id + 100, hostname FROM main.mysql_servers WHERE hostname = 'db1'
----
ok 1

SELECT hostgroup_id FROM disk.mysql_servers ORDER BY 1
----
[hostgroup_id]
10
20
20
110

LOAD MYSQL SERVERS TO RUNTIME IF REVISION 99
----
error 1213 40001: …

DELETE FROM mysql_servers WHERE hostname = 'nobody'
----
ok 0

UPDATE runtime_mysql_servers SET weight = 3
----
error 1045 28000: ProxySQL Admin Error: runtime_mysql_servers is read-only: change mysql_servers and LOAD it TO RUNTIME

SHOW MYSQL SERVERS
----
[hostgroup_id | hostname | port | gtid_port | status | weight | compression | max_connections | max_replication_lag | use_ssl | max_latency_ms | comment]
10 | db1 | 3306 | 0 | ONLINE | 1 | 0 | 1000 | 0 | 0 | 0 | a "comment"
20 | db2 | 3306 | 0 | ONLINE | 5 | 0 | 1000 | 0 | 0 | 0 | 
20 | db3 | 3307 | 0 | ONLINE | 5 | 0 | 1000 | 0 | 0 | 0 | 

INSERT INTO mysql_servers (hostgroup_id, hostname) VALUES (7, '')
----
ok 1

LOAD MYSQL SERVERS TO RUNTIME
----
error 1045 28000: ProxySQL Admin Error: LOAD MYSQL SERVERS TO RUNTIME refused: mysql_servers (7, , 3306): hostname must not be empty

DELETE FROM mysql_servers WHERE hostgroup_id=7
----
ok 1
