// Drivers of the corpus in Go; see ../README.md. The first argument names the driver: go-sql-driver or pgx.
package main

import (
	"crypto/md5"
	"encoding/json"
	"fmt"
	"os"
)

type step struct {
	Do       string
	SQL      string
	Sets     [][]parameter
	Size     int
	Data     string
	Pipeline []statement
}

type testCase struct {
	Name  string
	Pins  bool
	Steps []step
}

// Target is where a driver connects to.
type target struct{ host, port, user, password, database string }

// A client of a driver. A step's results are printed as JSON.
type client interface {
	login() any
	step(step) []any
	close()
}

func main() {
	connect := map[string]func(target) client{"go-sql-driver": connectMySQL, "pgx": connectPgx}[os.Args[1]]
	at := target{os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6]}
	text := must(os.ReadFile(os.Args[7]))
	var cases []testCase
	check(json.Unmarshal(text, &cases))
	open := func(name string) client {
		c := connect(at)
		say(map[string]any{"login": name, "session": c.login()})
		return c
	}
	clients := map[string]client{"A": open("A"), "B": open("B")}
	for _, each := range cases {
		for _, name := range []string{"A", "B"} {
			steps := [][]any{}
			for _, step := range each.Steps {
				steps = append(steps, clients[name].step(step))
			}
			say(map[string]any{"case": each.Name, "client": name, "steps": steps})
			if each.Pins {
				clients[name].close()
				clients[name] = open(name)
			}
		}
	}
}

func say(line any) {
	fmt.Println(string(must(json.Marshal(line))))
}

// short is a value with its type, as text; long ones by length and digest.
func short(value any) string {
	text := fmt.Sprintf("%T %v", value, value)
	if bytes, ok := value.([]byte); ok {
		text = fmt.Sprintf("bytes %x", bytes)
	}
	if len(text) <= 1000 {
		return text
	}
	return fmt.Sprintf("%d bytes: %x", len(text), md5.Sum([]byte(text)))
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
