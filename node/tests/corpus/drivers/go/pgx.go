package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

type pgxClient struct {
	conn    *pgx.Conn
	notices []any
}

func connectPgx(at target) client {
	c := &pgxClient{notices: []any{}}
	config := must(pgx.ParseConfig(fmt.Sprintf("postgres://%s:%s@%s:%s/%s?sslmode=disable", at.user, at.password, at.host, at.port, at.database)))
	config.OnNotice = func(_ *pgconn.PgConn, notice *pgconn.Notice) {
		c.notices = append(c.notices, (*pgconn.PgError)(notice))
	}
	c.conn = must(pgx.ConnectConfig(background, config))
	return c
}

func (c *pgxClient) login() any { return map[string]any{"backend_pid": c.conn.PgConn().PID()} }

func (c *pgxClient) close() { check(c.conn.Close(background)) }

func (c *pgxClient) step(s step) []any {
	var results []any
	switch s.Do {
	case "query":
		results = drain(c.conn.PgConn().Exec(background, s.SQL))
	case "prepare":
		results = c.prepare(s)
	case "copy_in":
		tag, err := c.conn.PgConn().CopyFrom(background, strings.NewReader(s.Data), s.SQL)
		results = []any{copied(tag, err, nil)}
	case "copy_out":
		var out bytes.Buffer
		tag, err := c.conn.PgConn().CopyTo(background, &out, s.SQL)
		results = []any{copied(tag, err, out.Bytes())}
	case "pipeline":
		results = c.batch(s.Pipeline)
	}
	notices := c.notices
	c.notices = []any{}
	return append(results, map[string]any{"notices": notices, "transaction": string(c.conn.PgConn().TxStatus())})
}

// All results of a simple query.
func drain(reader *pgconn.MultiResultReader) []any {
	results := []any{}
	for reader.NextResult() {
		results = append(results, raw(reader.ResultReader()))
	}
	if err := reader.Close(); err != nil {
		results = append(results, failure(err))
	}
	return results
}

func raw(result *pgconn.ResultReader) any {
	columns := describe(result.FieldDescriptions())
	rows := [][]string{}
	for result.NextRow() {
		row := []string{}
		for _, value := range result.Values() {
			row = append(row, cell(value))
		}
		rows = append(rows, row)
	}
	tag, _ := result.Close() // an error comes again when the whole answer is closed
	return map[string]any{"columns": columns, "rows": rows, "tag": tag.String()}
}

// NULL is not an empty value.
func cell(value []byte) string {
	if value == nil {
		return "NULL"
	}
	return short(value)
}

func describe(list []pgconn.FieldDescription) []string {
	columns := []string{}
	for _, f := range list {
		columns = append(columns, fmt.Sprint(f.Name, own(f.TableOID), f.TableAttributeNumber, own(f.DataTypeOID), f.DataTypeSize, f.TypeModifier, f.Format))
	}
	return columns
}

// own hides ids of tables and types that the cases make: they differ from run to run.
func own(id uint32) string {
	if id < 16384 {
		return fmt.Sprint(" ", id, " ")
	}
	return " own "
}

// The statement is prepared once under a name; pgx sends and asks for binary values where it knows the type.
func (c *pgxClient) prepare(s step) []any {
	prepared, err := c.conn.Prepare(background, "corpus", s.SQL)
	if err != nil {
		return []any{failure(err)}
	}
	results := []any{map[string]any{"parameters": prepared.ParamOIDs, "columns": describe(prepared.Fields)}}
	for _, set := range s.Sets {
		rows, err := c.conn.Query(background, "corpus", values(set)...)
		if err != nil {
			results = append(results, failure(err))
			continue
		}
		results = append(results, resultOf(rows))
	}
	if err := c.conn.Deallocate(background, "corpus"); err != nil {
		results = append(results, failure(err))
	}
	return results
}

func resultOf(rows pgx.Rows) any {
	list := [][]string{}
	for rows.Next() {
		row := []string{}
		for _, value := range rows.RawValues() {
			row = append(row, cell(value))
		}
		list = append(list, row)
	}
	rows.Close()
	if err := rows.Err(); err != nil {
		return failure(err)
	}
	return map[string]any{"columns": describe(rows.FieldDescriptions()), "rows": list, "tag": rows.CommandTag().String()}
}

// A batch is one pipeline of all its statements with one Sync.
func (c *pgxClient) batch(statements []statement) []any {
	batch := &pgx.Batch{}
	for _, each := range statements {
		batch.Queue(each.sql, values(each.parameters)...)
	}
	answers := c.conn.SendBatch(background, batch)
	results := []any{}
	for range statements {
		rows, err := answers.Query()
		if err != nil {
			results = append(results, failure(err))
			break
		}
		results = append(results, resultOf(rows))
	}
	if err := answers.Close(); err != nil {
		results = append(results, failure(err))
	}
	return results
}

func copied(tag pgconn.CommandTag, err error, data []byte) any {
	if err != nil {
		return failure(err)
	}
	return map[string]any{"tag": tag.String(), "copied": short(data)}
}

func failure(err error) any {
	var failed *pgconn.PgError
	if errors.As(err, &failed) {
		return map[string]any{"error": failed}
	}
	return map[string]any{"error": err.Error()}
}
