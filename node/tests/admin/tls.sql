# What TLS settings cannot do here is said.

UPDATE global_variables SET variable_value = 'ECDHE-RSA-AES128-SHA' WHERE variable_name = 'mysql-ssl_p2s_cipher'
----
ok 1

SET mysql-ffto_enabled = 'true'
----
ok 1

LOAD MYSQL VARIABLES TO RUNTIME
----
ok 0…
warning: mysql-ssl_p2s_cipher is not used: its OpenSSL names mean nothing to rustls, which offers the strong suites of TLS 1.2 and 1.3 only
warning: stored, and without effect in this version: mysql-ffto_enabled

SET mysql-ssl_p2s_cipher = ''
----
ok 1

SET mysql-ffto_enabled = 'false'
----
ok 1

LOAD MYSQL VARIABLES TO RUNTIME
----
ok 0…

SELECT * FROM mysql_servers_ssl_params
----
error 1045 28000: ProxySQL Admin Error: no such table: mysql_servers_ssl_params (not available in this version: the variables mysql-ssl_p2s_* and pgsql-ssl_p2s_* set TLS for all servers with use_ssl=1)

INSERT INTO pgsql_servers_ssl_params (hostname) VALUES ('a')
----
error 1045 28000: ProxySQL Admin Error: no such table: pgsql_servers_ssl_params (not available in this version: …)

SELECT * FROM runtime_scheduler
----
error 1045 28000: ProxySQL Admin Error: no such table: runtime_scheduler (not available in this version: programs are to be run from outside)

PROXYSQL RELOAD TLS
----
ok 0

PROXYSQL FLUSH LOGS
----
ok 0
