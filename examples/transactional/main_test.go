package main_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Twenty transfers, six of which fail once in the middle: each is posted once, to the cent, and so is the event that one of
// them publishes. Nothing is left behind.
//
// contract: D-17
func TestOnce(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	program := filepath.Join(t.TempDir(), "transactional")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", program, ".").CombinedOutput(); err != nil { //nolint:gosec // our own
		t.Fatalf("%v\n%s", err, out)
	}
	temp := t.TempDir()
	cmd := exec.CommandContext(ctx, program, "-once") //nolint:gosec // built above
	cmd.Env = append(os.Environ(), "TMPDIR="+temp)
	out, err := cmd.CombinedOutput()
	if want := "alice has -110 cents, bob has 210; the handler ran 26 times, warnings: 1\n"; err != nil || string(out) != want {
		t.Errorf("%v, it says %q, want %q", err, out, want)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("temporary files are left: %v, %v", left, err)
	}
}
