package sqlite_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(openEnv); path != "" {
		os.Exit(openChild(path))
	}
	goleak.VerifyTestMain(m)
}
