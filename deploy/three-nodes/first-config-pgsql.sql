-- A first configuration for PostgreSQL: one primary, one standby, one user, the classic read/write split. Change addresses
-- and passwords, then: psql -h 127.0.0.1 -p 6132 -U admin -d admin -v ON_ERROR_STOP=1 -f first-config-pgsql.sql
-- On the primary these roles must exist (standbys are told apart by pg_is_in_recovery()):
--   CREATE ROLE monitor LOGIN PASSWORD 'monitor';
--   CREATE ROLE app LOGIN PASSWORD 'app-password';         -- with the privileges that the application has today
INSERT INTO pgsql_servers (hostgroup_id, hostname, port) VALUES (10, '127.0.0.1', 15432), (20, '127.0.0.1', 15433);
INSERT INTO pgsql_replication_hostgroups (writer_hostgroup, reader_hostgroup) VALUES (10, 20);
SET pgsql-monitor_username = 'monitor';
SET pgsql-monitor_password = 'monitor';
LOAD PGSQL VARIABLES TO RUNTIME;
LOAD PGSQL SERVERS TO RUNTIME;

INSERT INTO pgsql_users (username, password, default_hostgroup) VALUES ('app', 'app-password', 10);
LOAD PGSQL USERS TO RUNTIME;

INSERT INTO pgsql_query_rules (rule_id, active, match_digest, destination_hostgroup, apply) VALUES
    (1, 1, '^SELECT.*FOR UPDATE', 10, 1),
    (2, 1, '^SELECT', 20, 1);
LOAD PGSQL QUERY RULES TO RUNTIME;

SAVE PGSQL SERVERS TO DISK;
SAVE PGSQL USERS TO DISK;
SAVE PGSQL QUERY RULES TO DISK;
SAVE PGSQL VARIABLES TO DISK;
