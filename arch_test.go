package loam_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const mod = "github.com/openloam/loam"

// allowed is the whole import graph of the module: package => packages of ours it may import. A new package must be
// entered here, on its floor.
var allowed = map[string][]string{
	// 0: nothing of ours, but what is internal here.
	"internal/txmark":    {},
	"internal/outage":    {},
	"internal/quietlog":  {},
	"internal/loop":      {},
	"internal/once":      {},
	"internal/cleantext": {},
	"tenant":             {},
	"database":           {"internal/txmark"},
	"health":             {},
	"database/sqlite":    {"database"},
	"database/postgres":  {"database"},
	"migrations":         {"database", "internal/txmark"},
	// 1
	"events": {"internal/txmark", "tenant"},
	"ledger": {"database", "tenant"},
	// 2
	"durable": {"database", "events", "internal/cleantext", "internal/once", "internal/outage", "ledger", "tenant"},
	"outbox":  {"database", "events", "internal/cleantext", "internal/once", "internal/outage", "tenant"},
	// 3
	"outbox/natsjs": {"events", "internal/cleantext", "internal/once", "internal/outage", "outbox"},
	"sweep":         {"database", "durable", "ledger", "tenant"},
	// 4
	"jobs":  {"database", "durable", "internal/outage", "internal/quietlog", "sweep", "tenant"},
	"admin": {"database", "durable", "events", "health", "tenant"},
	// 5
	"loam": {
		"database", "durable", "events", "health", "internal/loop", "internal/outage", "jobs", "ledger", "migrations", "outbox", "sweep", "tenant",
	},
	// 6
	"internal/dburl":         {"database", "database/postgres", "database/sqlite"},
	"cmd/loam":               {"internal/dburl", "migrations"},
	"cmd/loam-torture":       {"database", "database/postgres", "database/sqlite", "durable", "events", "loam", "outbox", "outbox/natsjs", "tenant"},
	"cmd/loam-bench":         {"database", "durable", "events", "internal/dburl", "loam", "tenant"},
	"examples/admin":         {"admin", "database", "database/sqlite", "durable", "events", "loam", "tenant"},
	"examples/nats":          {"database/sqlite", "durable", "events", "loam", "outbox", "outbox/natsjs", "tenant"},
	"examples/outbox":        {"database/sqlite", "durable", "events", "loam", "outbox", "tenant"},
	"examples/postgres":      {"database", "durable", "events", "internal/dburl", "loam", "tenant"},
	"examples/transactional": {"database", "database/sqlite", "durable", "events", "loam", "tenant"},
	"examples/quickstart":    {"admin", "database/sqlite", "durable", "events", "loam", "tenant"},
	// For our own tests only.
	"internal/dbtest":      {"database", "database/postgres", "database/sqlite", "migrations"},
	"internal/faultpoints": {},
	"internal/mutants":     {},
	"internal/sequences":   {},
	"internal/natsserver":  {},
	"internal/pgserver":    {"internal/dbtest"},
	"internal/model":       {},
	"internal/rig":         {"database", "durable", "events", "internal/dbtest", "ledger", "outbox", "sweep", "tenant"},
}

// owner says which packages alone may import a third-party tree.
var owner = map[string][]string{
	"github.com/riverqueue/": {"cmd/loam-bench", "examples/admin", "jobs", "migrations"}, // loam-bench measures plain River beside Loam
	"riverqueue.com/":        {"examples/admin"},
	"github.com/chromedp/":   {},
	"github.com/jackc/":      {"cmd/loam-torture", "database", "database/postgres", "internal/dbtest", "jobs"},
	"modernc.org/":           {"database/sqlite", "internal/dbtest"},
	"github.com/uptrace/bun": {"database", "durable"},
	"net/http":               {"admin", "examples/admin", "examples/quickstart"},
	"html/template":          {"admin", "examples/admin"},
	"github.com/nats-io/":    {"cmd/loam-torture", "examples/nats", "internal/natsserver", "outbox/natsjs"},
	"testing":                {"internal/dbtest", "internal/natsserver", "internal/pgserver", "internal/rig"},
}

type listed struct {
	ImportPath, Dir string
	GoFiles         []string
	Imports         []string
}

func (p listed) name() string {
	if name := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, mod), "/"); name != "" {
		return name
	}
	return "loam"
}

func list(t *testing.T) []listed {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Dir,GoFiles,Imports", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// floorErrors says what breaks the table.
func floorErrors(all []listed) []string {
	var errs []string
	seen := map[string]bool{}
	for _, p := range all {
		name := p.name()
		ok, known := allowed[name]
		if !known {
			errs = append(errs, name+" has no floor: add it to allowed")
		}
		seen[name] = true
		for _, imp := range p.Imports {
			ours, isOurs := strings.CutPrefix(imp, mod)
			if ours = strings.TrimPrefix(ours, "/"); isOurs && ours == "" {
				ours = "loam"
			}
			if isOurs && !slices.Contains(ok, ours) {
				errs = append(errs, name+" must not import "+ours)
			}
			for tree, who := range owner {
				if strings.HasPrefix(imp, tree) && !slices.Contains(who, name) {
					errs = append(errs, name+" must not import "+imp)
				}
			}
		}
	}
	for name := range allowed {
		if !seen[name] {
			errs = append(errs, "allowed names "+name+", which does not exist")
		}
	}
	return errs
}

func TestFloors(t *testing.T) {
	t.Parallel()
	all := list(t)
	for _, e := range floorErrors(all) {
		t.Error(e)
	}

	// The check sees what it is for.
	for _, c := range []struct{ pkg, imp, want string }{
		{"durable", "github.com/riverqueue/river", "durable must not import github.com/riverqueue/river"},
		{"events", mod + "/durable", "events must not import durable"},
		{"jobs", mod, "jobs must not import loam"},
		{"nowhere", "fmt", "nowhere has no floor: add it to allowed"},
	} {
		broken := append(slices.Clone(all), listed{ImportPath: mod + "/" + c.pkg, Imports: []string{c.imp}})
		if got := floorErrors(broken); !slices.Contains(got, c.want) {
			t.Errorf("%s importing %s: got %q, want %q among them", c.pkg, c.imp, got, c.want)
		}
	}
}

// TestDurableKnowsNoRiver: the state machine must not depend on the queue, not even through another package.
func TestDurableKnowsNoRiver(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "./durable").Output()
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(out, []byte("riverqueue")) {
		t.Error("durable depends on River")
	}
}

func TestOnePackageComment(t *testing.T) {
	t.Parallel()
	for _, p := range list(t) {
		n := 0
		for _, file := range p.GoFiles {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, file), nil, parser.ParseComments|parser.PackageClauseOnly)
			if err != nil {
				t.Fatal(err)
			}
			if f.Doc != nil {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%s has %d package comments, want one", p.name(), n)
		}
	}
}
