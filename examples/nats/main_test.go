package main_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/openloam/loam/internal/natsserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Billing is killed, and what the shop publishes meanwhile reaches its subscriber when it starts again, each order once. So it
// is with the server inside the program, and with another one. Nothing is left behind.
//
// contract: N-06, O-05
func TestOnce(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "nats")
	if out, err := exec.Command("go", "build", "-o", file, ".").CombinedOutput(); err != nil { //nolint:gosec // the file is ours
		t.Fatalf("%v\n%s", err, out)
	}
	for what, url := range map[string]string{"inside": "", "another": natsserver.Run(t).ClientURL()} {
		temp := t.TempDir()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, file, "-once") //nolint:gosec // built above
		cmd.Env = append(os.Environ(), "TMPDIR="+temp, "NATS_URL="+url)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s%s", what, err, out, errs.String())
		}
		before, after, killed := strings.Cut(string(out), "\nBilling is killed.")
		_, after, again := strings.Cut(after, "\nBilling starts again.")
		if !killed || !again || strings.Count(before, "billing: invoice for order A-1\n") != 1 || strings.Count(string(out), "invoice for") != 3 {
			t.Errorf("%s:\n%s", what, out)
		}
		for _, want := range []string{"invoice for order A-2\n", "invoice for order A-3\n", "3 deliveries, all delivered\n"} {
			if strings.Count(after, want) != 1 {
				t.Errorf("%s: %q is not there once after billing has started again:\n%s", what, want, out)
			}
		}
		if left, err := os.ReadDir(temp); err != nil || len(left) > 0 || errs.Len() > 0 {
			t.Errorf("%s: files %v are left, %v; standard error: %s", what, left, err, errs.String())
		}
	}
}

// A bad address is refused at once, and says what is allowed.
//
// contract: O-05
func TestBadURL(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "go", "run", ".", "-once")
	cmd.Env = append(os.Environ(), "NATS_URL=http://127.0.0.1")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "URL: address 1 must be nats://") {
		t.Errorf("%v\n%s", err, out)
	}
}
