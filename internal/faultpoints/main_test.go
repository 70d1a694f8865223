package faultpoints_test

import (
	"os"
	"testing"

	"github.com/openloam/loam/internal/dbtest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(childEnv); text != "" {
		os.Exit(runChild(text))
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		dbtest.RemoveChildProgram()
		os.Exit(code)
	}))
}
