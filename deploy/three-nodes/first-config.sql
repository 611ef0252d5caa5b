-- A first configuration for MySQL or MariaDB: one writer, one reader, one user, the classic read/write split. Change
-- addresses and passwords, then: mariadb -h 127.0.0.1 -P 6032 -u admin -padmin < first-config.sql
-- On the servers (replicas included) these accounts must exist, and the replicas must say read_only = 1:
--   CREATE USER monitor@'%' IDENTIFIED BY 'monitor';       -- no privilege is needed to log in and read @@read_only
--   CREATE USER app@'%' IDENTIFIED BY 'app-password';      -- with the privileges that the application has today
INSERT INTO mysql_servers (hostgroup_id, hostname, port) VALUES (10, '127.0.0.1', 13306), (20, '127.0.0.1', 13307);
INSERT INTO mysql_replication_hostgroups (writer_hostgroup, reader_hostgroup) VALUES (10, 20);
SET mysql-monitor_username = 'monitor';
SET mysql-monitor_password = 'monitor';
LOAD MYSQL VARIABLES TO RUNTIME;
LOAD MYSQL SERVERS TO RUNTIME;

INSERT INTO mysql_users (username, password, default_hostgroup) VALUES ('app', 'app-password', 10);
LOAD MYSQL USERS TO RUNTIME;

INSERT INTO mysql_query_rules (rule_id, active, match_digest, destination_hostgroup, apply) VALUES
    (1, 1, '^SELECT.*FOR UPDATE', 10, 1),
    (2, 1, '^SELECT', 20, 1);
LOAD MYSQL QUERY RULES TO RUNTIME;

SAVE MYSQL SERVERS TO DISK;
SAVE MYSQL USERS TO DISK;
SAVE MYSQL QUERY RULES TO DISK;
SAVE MYSQL VARIABLES TO DISK;
