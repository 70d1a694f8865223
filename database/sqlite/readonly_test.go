package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/database/sqlite"
)

// openEnv makes a child process that opens the path in it, see openChild.
const openEnv = "LOAM_TEST_OPEN"

// openChild opens a database as a process without rights and says what it got.
func openChild(path string) int {
	db, err := sqlite.Open(context.Background(), path)
	if err == nil {
		err = errors.Join(errors.New("it opens"), db.Close())
		fmt.Println("other:", err)
		return 0
	}
	kind := "other"
	switch {
	case errors.Is(err, database.ErrReadOnly):
		kind = "read-only"
	case errors.Is(err, database.ErrCannotOpen):
		kind = "cannot open"
	}
	fmt.Println(kind+":", err)
	return 0
}

// The user of a process that must not write: root may write everywhere, so a test that runs as root becomes nobody.
const nobody = 65534

// A database that cannot be written is refused when it is opened, with an error that says so, and not at the first event.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	// A directory of its own below /tmp: those of t.TempDir cannot be entered by others.
	base, err := os.MkdirTemp("", "loam-readonly-") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := exec.Command("chmod", "-R", "u+w", base).Run(); err != nil { //nolint:gosec // our own directory
			t.Error(err)
		}
		if err := os.RemoveAll(base); err != nil {
			t.Error(err)
		}
	})
	program := filepath.Join(base, "program")
	if out, err := exec.CommandContext(t.Context(), "cp", os.Args[0], program).CombinedOutput(); err != nil { //nolint:gosec // this binary
		t.Fatalf("%v\n%s", err, out)
	}
	chmod(t, 0o755, base, program)

	for _, c := range []struct {
		name      string
		wal       bool // the file was in use before, by a Loam that could write
		file, dir os.FileMode
	}{
		{"a file and its directory", false, 0o444, 0o555},
		{"a file and its directory, in use before", true, 0o444, 0o555},
		{"only the file", false, 0o444, 0o777},
		{"only the file, in use before", true, 0o444, 0o777},
		{"only the directory", false, 0o666, 0o555},
		{"only the directory, in use before", true, 0o666, 0o555},
		{"a file that cannot be read", true, 0, 0o777},
	} {
		dir := filepath.Join(base, c.name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "app.db")
		if c.wal {
			write(t, path)
		} else if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		chmod(t, c.file, path)
		chmod(t, c.dir, dir)
		cmd := exec.CommandContext(t.Context(), program) //nolint:gosec // this binary
		cmd.Env = append(os.Environ(), openEnv+"="+path)
		cmd.Dir = "/"
		if os.Getuid() == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", c.name, err, out)
		}
		kind, text, _ := strings.Cut(string(out), ": ")
		if kind != "read-only" && kind != "cannot open" {
			t.Errorf("%s: got %s, want ErrReadOnly or ErrCannotOpen", c.name, out)
			continue
		}
		for _, want := range []string{"sqlite: open " + path, "director"} { // what to look at
			if !strings.Contains(text, want) {
				t.Errorf("%s: the message lacks %q: %s", c.name, want, text)
			}
		}
	}
}

func chmod(t *testing.T, mode os.FileMode, paths ...string) {
	t.Helper()
	for _, p := range paths {
		if err := os.Chmod(p, mode); err != nil {
			t.Fatal(err)
		}
	}
}
