# Two connections edit the same module: the one that has not seen the other's rows is warned.

SELECT count(*) FROM mysql_servers
----
[count(*)]
0

@admin2 INSERT INTO mysql_servers (hostgroup_id, hostname) VALUES (1, 'theirs')
----
ok 1

LOAD MYSQL SERVERS TO RUNTIME
----
ok 0: revision 2, …
warning: …

@admin2 SET admin-edit_conflicts='error'
----
ok 1

@admin2 LOAD ADMIN VARIABLES TO RUNTIME
----
ok 0: revision 3, …

SELECT hostname FROM mysql_servers
----
[hostname]
theirs

@admin2 INSERT INTO mysql_servers (hostgroup_id, hostname) VALUES (2, 'theirs')
----
ok 1

LOAD MYSQL SERVERS TO RUNTIME
----
error 1213 40001: …was changed by…

SELECT hostname FROM mysql_servers
----
[hostname]
theirs
theirs

LOAD MYSQL SERVERS TO RUNTIME
----
ok 0: revision 4, …
