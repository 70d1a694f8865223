package database

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Dialect names a kind of database. Its methods are all that statements differ by.
type Dialect string

const (
	// SQLite is the embedded default.
	SQLite Dialect = "sqlite"
	// PostgreSQL is for many machines.
	PostgreSQL Dialect = "postgres"
)

// ByID is the condition that a row of alias d is one of a tenant's with the ids of a List: parameters n and m. The tenant is
// written so that no index goes by it: the rows are found by their ids. On an empty table, or without statistics, both databases
// would rather read all rows of the tenant, and PostgreSQL keeps such a plan for as long as a connection lives.
func (d Dialect) ByID(n, m int) string {
	return fmt.Sprintf("d.tenant_id || '' = $%d AND ", n) + d.AnyOf("d.id", m)
}

// AnyOf is the condition that column is one of the values of a List bound as parameter n.
func (d Dialect) AnyOf(column string, n int) string {
	if d == PostgreSQL { // an array, so that the plan goes by the index
		return fmt.Sprintf("%s = ANY (ARRAY(SELECT json_array_elements_text(CAST($%d AS json))))", column, n)
	}
	return fmt.Sprintf("%s IN (SELECT value FROM json_each($%d))", column, n)
}

// AnyInt is AnyOf for a column of integers and an Ints.
func (d Dialect) AnyInt(column string, n int) string {
	if d == PostgreSQL {
		return fmt.Sprintf("%s = ANY (ARRAY(SELECT CAST(json_array_elements_text(CAST($%d AS json)) AS bigint)))", column, n)
	}
	return d.AnyOf(column, n)
}

// TimeType is the type of the columns that hold a Time, for a CAST.
func (d Dialect) TimeType() string {
	if d == PostgreSQL {
		return "timestamptz"
	}
	return "TEXT"
}

// Each is a table j whose column value has the elements of a JSON array bound as parameter n.
func (d Dialect) Each(n int) string {
	if d == PostgreSQL {
		return fmt.Sprintf("json_array_elements(CAST($%d AS json)) AS j (value)", n)
	}
	return fmt.Sprintf("json_each($%d) AS j", n)
}

// Rows is a table j with columns of text c0, c1, … that are bound as parameters from n on: PostgreSQL has an array for each, which
// it need not parse, and SQLite a JSON array of them all. All columns have the same length. PostgreSQL is not shown how many
// there are when it plans: it takes them for a few, and looks for each by an index.
func (d Dialect) Rows(n int, columns ...[]string) (table string, args []any) {
	names, parts := make([]string, len(columns)), make([]string, len(columns))
	for i, c := range columns {
		names[i] = fmt.Sprintf("c%d", i)
		if d == PostgreSQL {
			parts[i], args = fmt.Sprintf("(SELECT CAST($%d AS text[]))", n+i), append(args, c)
			continue
		}
		parts[i] = fmt.Sprintf("value ->> %d AS %s", i, names[i])
	}
	if d == PostgreSQL {
		return "unnest(" + strings.Join(parts, ", ") + ") AS j (" + strings.Join(names, ", ") + ")", args
	}
	rows := make([][]string, len(columns[0]))
	for i := range rows {
		rows[i] = make([]string, len(columns))
		for c := range columns {
			rows[i][c] = columns[c][i]
		}
	}
	text, _ := json.Marshal(rows) // strings always encode
	return "(SELECT " + strings.Join(parts, ", ") + fmt.Sprintf(" FROM json_each($%d)) AS j", n), []any{string(text)}
}

// LockFree ends a SELECT that locks the rows of alias that nobody has locked, and leaves out the others. On SQLite, where
// one transaction writes at a time, it is nothing.
func (d Dialect) LockFree(alias string) string {
	if d == PostgreSQL {
		return " FOR UPDATE OF " + alias + " SKIP LOCKED"
	}
	return ""
}

// LockSorted ends a SELECT that locks the rows of alias one after the other in an order, so that two that lock the same rows do
// not wait for each other. On SQLite it is nothing.
func (d Dialect) LockSorted(alias, order string) string {
	if d == PostgreSQL {
		return " ORDER BY " + order + " FOR UPDATE OF " + alias
	}
	return ""
}

// List makes one bound parameter of ids, for AnyOf. A list without ids matches nothing.
func List(ids []string) string {
	if len(ids) == 0 {
		return "[]"
	}
	text, _ := json.Marshal(ids) // a []string always encodes
	return string(text)
}

// Ints makes one bound parameter of ids, for AnyInt. A list without ids matches nothing.
func Ints(ids []int64) string {
	if len(ids) == 0 {
		return "[]"
	}
	text, _ := json.Marshal(ids) // integers always encode
	return string(text)
}
