package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// A parameter is written as [TYPE, VALUE].
type parameter struct{ value any }

// A statement of a pipeline is written as [SQL, PARAMETERS].
type statement struct {
	sql        string
	parameters []parameter
}

func (s *statement) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&s.sql, &s.parameters})
}

func (p *parameter) UnmarshalJSON(text []byte) error {
	var kind string
	var raw json.RawMessage
	if err := json.Unmarshal(text, &[]any{&kind, &raw}); err != nil {
		return err
	}
	var err error
	p.value, err = read(kind, raw)
	return err
}

func read(kind string, raw json.RawMessage) (any, error) {
	switch kind {
	case "null":
		return nil, nil
	case "bool":
		return decode[bool](raw)
	case "int":
		return decode[int64](raw)
	case "float":
		return decode[float64](raw)
	case "ints":
		return decode[[]int64](raw)
	case "texts":
		return decode[[]string](raw)
	}
	text, err := decode[string](raw)
	if err != nil {
		return nil, err
	}
	switch kind {
	case "text", "decimal", "time", "uuid":
		return text, nil
	case "bigint":
		return strconv.ParseInt(text, 10, 64)
	case "bytes":
		return hex.DecodeString(text)
	case "date":
		return time.Parse("2006-01-02", text)
	case "timestamp":
		return time.Parse("2006-01-02T15:04:05", text)
	case "timestamptz":
		return time.Parse(time.RFC3339, text)
	}
	return nil, fmt.Errorf("unknown type of parameter %q", kind)
}

func decode[T any](raw json.RawMessage) (T, error) {
	var value T
	err := json.Unmarshal(raw, &value)
	return value, err
}

func values(set []parameter) []any {
	list := []any{}
	for _, each := range set {
		list = append(list, each.value)
	}
	return list
}
