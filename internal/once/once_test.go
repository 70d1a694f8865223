package once_test

import (
	"strconv"
	"testing"

	"go.uber.org/goleak"

	"github.com/openloam/loam/internal/once"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFirst(t *testing.T) {
	t.Parallel()
	var e once.Each
	if !e.First("a") || e.First("a") || !e.First("b") || e.First("b") {
		t.Error("an id is first once")
	}
	for i := range 5000 {
		e.First(strconv.Itoa(i))
	}
	if !e.First("a") {
		t.Error("after thousands of others it remembers all")
	}
}
