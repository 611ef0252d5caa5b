# SET, SHOW VARIABLES, @@, overrides.

SET mysql-max_connections=3000
----
ok 1

SELECT @@mysql-max_connections
----
[@@mysql-max_connections]
3000

SHOW MYSQL VARIABLES LIKE 'mysql-max_connections'
----
[Variable_name | Value]
mysql-max_connections | 3000
warning: mysql-max_connections is staged: '10000' is in force until LOAD MYSQL VARIABLES TO RUNTIME

SELECT variable_value FROM runtime_global_variables WHERE variable_name='mysql-max_connections'
----
[variable_value]
10000

LOAD MYSQL VARIABLES TO RUNTIME
----
ok 0: revision 2, …

SELECT variable_value FROM runtime_global_variables WHERE variable_name='mysql-max_connections'
----
[variable_value]
3000

SET mysql-no_such=1
----
ok 0: ERROR: Unknown global variable: 'mysql-no_such'.
warning: ERROR: Unknown global variable: 'mysql-no_such'.

SET mysql-threads='many'
----
ok 1
warning: mysql-threads shows node.threads of each node's bootstrap file: the value is stored and has no effect

SET admin-version='9.9'
----
error 1045 28000: ProxySQL Admin Error: admin-version is the version of the binary and cannot be set

SET NODE 1 mysql-threads=8
----
error 1045 28000: ProxySQL Admin Error: mysql-threads is decided by the node itself and cannot be overridden

SET NODE 1 mysql-interfaces='127.0.0.1:7000'
----
ok 1
warning: mysql-interfaces takes effect at the next start of node 1

SET NODE 1 mysql-interfaces=DEFAULT
----
ok 1
warning: mysql-interfaces takes effect at the next start of node 1

LOAD MYSQL VARIABLES TO RUNTIME
----
error 1045 28000: ProxySQL Admin Error: LOAD MYSQL VARIABLES TO RUNTIME refused: global_variables ('mysql-threads'), column variable_value: invalid value 'many' for mysql-threads: …

SAVE MYSQL VARIABLES TO MEMORY
----
ok 0: …

SHOW VARIABLES LIKE 'mysql-max\_connections'
----
[Variable_name | Value]
mysql-max_connections | 3000

SHOW GLOBAL VARIABLES WHERE Variable_name IN ('mysql-max_connections', 'max_allowed_packet', 'time_zone') ORDER BY 1
----
[Variable_name | Value]
max_allowed_packet | 67108864
mysql-max_connections | 3000
time_zone | SYSTEM

SELECT @@max_allowed_packet, @@wait_timeout, @@socket
----
[@@max_allowed_packet | @@wait_timeout | @@socket]
67108864 | 28800 | 

SELECT @@nothing_known
----
[@@nothing_known]

SET NODE 1 mysql-max_connections=100
----
ok 1

SELECT * FROM node_overrides
----
[node_id | variable_name | variable_value]
1 | mysql-max_connections | 100

SELECT variable_value FROM runtime_global_variables WHERE variable_name='mysql-max_connections'
----
[variable_value]
100

SELECT variable_value FROM global_variables WHERE variable_name='mysql-max_connections'
----
[variable_value]
3000

SET NODE 1 mysql-max_connections=DEFAULT
----
ok 1

SELECT count(*) FROM node_overrides
----
[count(*)]
0

SET NODE 9 mysql-max_connections=5
----
error 1045 28000: ProxySQL Admin Error: no member of the cluster has node id 9; …

INSERT INTO node_overrides VALUES (1, 'mysql-threads', '1')
----
error 1045 28000: ProxySQL Admin Error: node_overrides is written by SET NODE …

SET admin-admin_credentials=''
----
ok 1

LOAD ADMIN VARIABLES TO RUNTIME
----
error 1045 28000: ProxySQL Admin Error: LOAD ADMIN VARIABLES TO RUNTIME refused: …nobody could log in…

# A row that is deleted: LOAD keeps what is in force, as in the reference, and SET brings the row back.

DELETE FROM global_variables
----
ok …

SELECT @@mysql-max_connections
----
[@@mysql-max_connections]
3000

LOAD MYSQL VARIABLES TO RUNTIME
----
ok 0: …

SHOW VARIABLES LIKE 'mysql-max\_connections'
----
[Variable_name | Value]
mysql-max_connections | 3000

SET mysql-max_connections=4000
----
ok 1

SELECT * FROM global_variables
----
[variable_name | variable_value]
mysql-max_connections | 4000

LOAD MYSQL VARIABLES TO RUNTIME
----
ok 0: …

SELECT variable_value FROM runtime_global_variables WHERE variable_name='mysql-max_connections'
----
[variable_value]
4000

SAVE MYSQL VARIABLES FROM RUNTIME
----
ok 0: …

SELECT count(*) > 100 FROM global_variables
----
[count(*) > 100]
1
