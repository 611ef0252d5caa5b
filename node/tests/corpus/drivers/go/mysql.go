package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"

	"github.com/go-sql-driver/mysql"
)

// go-sql-driver behind database/sql, one connection per client.
type mysqlClient struct {
	db   *sql.DB
	conn *sql.Conn
}

var background = context.Background()

func connectMySQL(at target) client {
	config := mysql.NewConfig()
	config.User, config.Passwd, config.Net, config.DBName = at.user, at.password, "tcp", at.database
	config.Addr = at.host + ":" + at.port
	config.MultiStatements = true
	db := sql.OpenDB(must(mysql.NewConnector(config)))
	return &mysqlClient{db, must(db.Conn(background))}
}

func (c *mysqlClient) login() any { return nil }

func (c *mysqlClient) close() {
	check(c.conn.Close())
	check(c.db.Close())
}

// A statement that returns rows; database/sql wants to know.
var returnsRows = regexp.MustCompile(`(?is)^(\s|/\*.*?\*/|#[^\n]*\n|\()*(SELECT|SHOW|DESCRIBE|EXPLAIN|WITH|CALL|VALUES|TABLE|CHECK|ANALYZE|OPTIMIZE|EXECUTE|BEGIN NOT)|RETURNING|;`)

func (c *mysqlClient) step(s step) []any {
	switch s.Do {
	case "query":
		return c.run(returnsRows.MatchString(s.SQL), func() (*sql.Rows, error) { return c.conn.QueryContext(background, s.SQL) },
			func() (sql.Result, error) { return c.conn.ExecContext(background, s.SQL) })
	case "prepare":
		return c.prepare(s)
	default:
		return []any{outcome(c.conn.PingContext(background))}
	}
}

func (c *mysqlClient) prepare(s step) []any {
	prepared, err := c.conn.PrepareContext(background, s.SQL)
	if err != nil {
		return []any{outcome(err)}
	}
	defer prepared.Close()
	results := []any{}
	for _, set := range s.Sets {
		arguments := values(set)
		results = append(results, c.run(returnsRows.MatchString(s.SQL), func() (*sql.Rows, error) { return prepared.Query(arguments...) },
			func() (sql.Result, error) { return prepared.Exec(arguments...) })...)
	}
	return results
}

func (c *mysqlClient) run(rows bool, query func() (*sql.Rows, error), exec func() (sql.Result, error)) []any {
	if !rows {
		done, err := exec()
		if err != nil {
			return []any{outcome(err)}
		}
		affected, _ := done.RowsAffected()
		id, _ := done.LastInsertId()
		return []any{map[string]any{"affected": affected, "insert_id": id}}
	}
	found, err := query()
	if err != nil {
		return []any{outcome(err)}
	}
	defer found.Close()
	return readAll(found)
}

func readAll(found *sql.Rows) []any {
	results := []any{}
	for more := true; more; more = found.NextResultSet() {
		columns := []string{}
		types, _ := found.ColumnTypes()
		for _, each := range types {
			length, hasLength := each.Length()
			precision, scale, hasScale := each.DecimalSize()
			nullable, _ := each.Nullable()
			columns = append(columns, fmt.Sprint(each.Name(), each.DatabaseTypeName(), each.ScanType(), length, hasLength, precision, scale, hasScale, nullable))
		}
		rows := [][]string{}
		for found.Next() {
			cells, pointers := make([]any, len(types)), make([]any, len(types))
			for i := range cells {
				pointers[i] = &cells[i]
			}
			check(found.Scan(pointers...))
			row := []string{}
			for _, cell := range cells {
				row = append(row, short(cell))
			}
			rows = append(rows, row)
		}
		results = append(results, map[string]any{"columns": columns, "rows": rows})
	}
	if err := found.Err(); err != nil {
		results = append(results, outcome(err))
	}
	return results
}

// outcome is an error with everything it tells, or an empty result.
func outcome(err error) any {
	var failed *mysql.MySQLError
	switch {
	case err == nil:
		return map[string]any{}
	case errors.As(err, &failed):
		return map[string]any{"error": []any{failed.Number, string(failed.SQLState[:]), failed.Message}}
	default:
		return map[string]any{"error": err.Error()}
	}
}
