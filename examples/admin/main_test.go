package main

import (
	"os"
	"strings"
	"testing"
)

func TestOnce(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := run(t.Context(), &out, "", true); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("expected.txt")
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != string(want) {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}
