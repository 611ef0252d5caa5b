# What clients and drivers send, and what stats accounts may do.

select @@version_comment limit 1
----
[@@version_comment]
(ProxySQL Admin Module)

SELECT DATABASE(), USER() LIMIT 1
----
[DATABASE() | USER()]
admin | admin@127.0.0.1

SET NAMES utf8mb4
----
ok 0

BEGIN
----
ok 0
warning: transactions over admin tables are not available in this version: each statement is its own transaction

/*!40101 SET NAMES utf8 */
----
ok 0

USE main
----
ok 0

select $$
----
error 1054 28000: Unknown column '$$' in 'field list'

LOAD MYSQL SERVER TO RUNTIME
----
error 1045 28000: ProxySQL Admin Error: near "LOAD": syntax error

SELECT * FROM no_such_table
----
error 1045 28000: ProxySQL Admin Error: no such table: no_such_table

SELECT * FROM raft_meta
----
error 1045 28000: ProxySQL Admin Error: no such table: raft_meta

SELECT token_sha256 FROM main.join_tokens
----
error 1045 28000: ProxySQL Admin Error: no such table: join_tokens

SELECT * FROM sqlite_master
----
error 1045 28000: ProxySQL Admin Error: no such table: sqlite_master

SELECT * FROM base_runtime_mysql_users
----
error 1045 28000: ProxySQL Admin Error: no such table: base_runtime_mysql_users

SELECT no_such_column FROM mysql_users
----
error 1045 28000: ProxySQL Admin Error: no such column: no_such_column

CREATE TABLE x (y INT)
----
error 1045 28000: ProxySQL Admin Error: CREATE is not available: the tables of the admin interface are fixed

KILL 3
----
error 1045 28000: ProxySQL Admin Error: KILL is not available for sessions of clients…

SHOW TABLES LIKE '%replication%'
----
[tables]
mysql_replication_hostgroups
pgsql_replication_hostgroups
runtime_mysql_replication_hostgroups
runtime_pgsql_replication_hostgroups

SHOW TABLES FROM stats
----
[tables]
global_variables
stats_cluster_config
stats_cluster_nodes
stats_mysql_connection_pool
stats_mysql_global
stats_mysql_query_digest
stats_mysql_query_digest_reset
stats_mysql_query_rules
stats_pgsql_connection_pool
stats_pgsql_global
stats_pgsql_query_digest
stats_pgsql_query_digest_reset
stats_pgsql_query_rules

SHOW DATABASES
----
[seq | name | file]
0 | main | 
2 | disk | 
3 | stats | 
4 | monitor | 

SHOW CREATE TABLE mysql_replication_hostgroups
----
[table | Create Table]
mysql_replication_hostgroups | CREATE TABLE mysql_replication_hostgroups (
    writer_hostgroup INT CHECK (writer_hostgroup>=0) NOT NULL PRIMARY KEY,
    reader_hostgroup INT NOT NULL CHECK (reader_hostgroup<>writer_hostgroup AND reader_hostgroup>=0),
    check_type …
    comment VARCHAR NOT NULL DEFAULT '',
    UNIQUE (reader_hostgroup))

DESCRIBE mysql_users
----
[Field | Type | Null | Key | Default | Extra]
username | varchar(255) | NO | PRI | NULL | 
password | varchar(255) | YES |  | NULL | 
active | varchar(255) | NO |  | 1 | 
use_ssl | varchar(255) | NO |  | 0 | 
default_hostgroup | varchar(255) | NO |  | 0 | 
default_schema | varchar(255) | YES |  | NULL | 
schema_locked | varchar(255) | NO |  | 0 | 
transaction_persistent | varchar(255) | NO |  | 1 | 
fast_forward | varchar(255) | NO |  | 0 | 
backend | varchar(255) | NO | PRI | 1 | 
frontend | varchar(255) | NO |  | 1 | 
max_connections | varchar(255) | NO |  | 10000 | 
attributes | varchar(255) | NO |  | '' | 
comment | varchar(255) | NO |  | '' | 

SELECT node_id, slot, name, role, voter, contact_ms, build FROM stats_cluster_nodes
----
[node_id | slot | name | role | voter | contact_ms | build]
1 | 1 | node1 | leader | 1 | NULL | test

SELECT count(*), count(DISTINCT module), count(DISTINCT applied_index) FROM stats.stats_cluster_config
----
[count(*) | count(DISTINCT module) | count(DISTINCT applied_index)]
27 | 9 | 1

SELECT * FROM STATS_MYSQL_CONNECTION_POOL
----
[hostgroup | srv_host | srv_port | status | ConnUsed | ConnFree | ConnOK | ConnERR | MaxConnUsed | Queries | Queries_GTID_sync | Bytes_data_sent | Bytes_data_recv | Latency_us]

@stats SELECT * FROM mysql_servers
----
error 1045 28000: ProxySQL Admin Error: no such table: mysql_servers

@stats SELECT variable_value FROM stats.global_variables
----
[variable_value]
4194304

@stats SELECT * FROM global_variables WHERE variable_name='mysql-max_allowed_packet'
----
[variable_name | variable_value]
mysql-max_allowed_packet | 4194304

@stats SELECT * FROM main.global_variables
----
error 1045 28000: ProxySQL Admin Error: no such table: global_variables

@stats SELECT count(*) FROM stats_mysql_query_rules
----
[count(*)]
0

@stats DELETE FROM stats_mysql_query_rules
----
error 1045 28000: ProxySQL Admin Error: attempt to write a readonly database

@stats LOAD MYSQL USERS TO RUNTIME
----
error 1045 28000: ProxySQL Admin Error: near "LOAD": syntax error

@stats SHOW TABLES LIKE '%cluster%'
----
[tables]
stats_cluster_config
stats_cluster_nodes

SET CONNECTION read_level='linearizable'
----
ok 0

/* linearizable */ SELECT count(*) FROM mysql_users
----
[count(*)]
0

SET CONNECTION read_after=1
----
ok 0

SELECT count(*) FROM mysql_users
----
[count(*)]
0

SET CONNECTION read_level='sometimes'
----
error 1045 28000: ProxySQL Admin Error: read_level is 'auto', 'local' or 'linearizable'

SELECT @@quorumsql_applied_index > 0
----
[…]
1
