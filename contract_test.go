package loam_test

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the tests' names into docs/contract.md")

var (
	contractLine = regexp.MustCompile(`contract: (.*)`)
	clauseID     = regexp.MustCompile(`\b[A-Z]-[0-9]{2}\b`)
	clauseRow    = regexp.MustCompile(`^\| ([A-Z]-[0-9]{2}) \| (.*) \| (.*) \|$`)
)

const notBuilt = "*not built yet*"

// TestContractPage: docs/contract.md names for every clause exactly the tests that say they prove it. Run it with -update
// to write their names.
func TestContractPage(t *testing.T) {
	t.Parallel()
	const page = "docs/contract.md"
	proofs := proofsByClause(t)
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	seen := map[string]bool{}
	for i, line := range lines {
		if strings.HasPrefix(line, "## Where we deviate") { // names clauses without proofs
			break
		}
		m := clauseRow.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		id, promise, listed := m[1], m[2], m[3]
		if seen[id] {
			t.Errorf("%s stands twice on the page", id)
		}
		seen[id] = true
		want := strings.Join(proofs[id], ", ")
		if want == "" {
			want = notBuilt
		}
		lines[i] = "| " + id + " | " + promise + " | " + want + " |"
		if listed != want && !*update {
			t.Errorf("%s: the page lists %s, the tests say %s", id, listed, want)
		}
	}
	for id := range proofs {
		if !seen[id] {
			t.Errorf("tests name %s, which is not on the page: %v", id, proofs[id])
		}
	}
	if *update {
		if err := os.WriteFile(page, []byte(strings.Join(lines, "\n")), 0o600); err != nil { //nolint:gosec // the page
			t.Fatal(err)
		}
	}
}

// proofsByClause finds the tests whose comment has a line "contract: ID, ID".
func proofsByClause(t *testing.T) map[string][]string {
	t.Helper()
	proofs := map[string][]string{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		for _, decl := range f.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Doc == nil {
				continue
			}
			for _, m := range contractLine.FindAllStringSubmatch(fn.Doc.Text(), -1) {
				for _, id := range clauseID.FindAllString(m[1], -1) {
					name := strings.TrimSuffix(f.Name.Name, "_test") + "." + fn.Name.Name
					if !slices.Contains(proofs[id], name) {
						proofs[id] = append(proofs[id], name)
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, names := range proofs {
		slices.Sort(names)
	}
	return proofs
}
