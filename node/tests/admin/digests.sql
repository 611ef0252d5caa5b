# Statements by digest (admin-tables.md 7): what they hold is tested with real servers in dataplane/tests.

SELECT * FROM stats_mysql_query_digest
----
[hostgroup | schemaname | username | client_address | digest | digest_text | count_star | first_seen | last_seen | sum_time | min_time | max_time | sum_rows_affected | sum_rows_sent | p50_time | p95_time | p99_time]

SELECT * FROM stats.stats_pgsql_query_digest_reset
----
[hostgroup | database | username | client_address | digest | digest_text | count_star | first_seen | last_seen | sum_time | min_time | max_time | sum_rows_affected | sum_rows_sent | p50_time | p95_time | p99_time]

TRUNCATE TABLE stats.stats_mysql_query_digest
----
ok 0

TRUNCATE stats_pgsql_query_digest_reset
----
ok 0

TRUNCATE mysql_servers
----
error 1045 28000: ProxySQL Admin Error: TRUNCATE is available for stats_mysql_query_digest and stats_pgsql_query_digest

@stats TRUNCATE stats_mysql_query_digest
----
error 1045 28000: ProxySQL Admin Error: near "TRUNCATE": syntax error
