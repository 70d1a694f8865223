package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each fault of the list has its place in the code as it is, and a name of its own.
func TestPlaces(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, m := range mutants {
		text, err := os.ReadFile(filepath.Join("..", "..", m.file))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), m.old) || m.old == m.new {
			t.Errorf("%s: its place is no longer in %s", m.name, m.file)
		}
		if names[m.name] {
			t.Errorf("%s: two have this name", m.name)
		}
		names[m.name] = true
	}
}
