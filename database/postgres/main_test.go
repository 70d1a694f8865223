package postgres_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/openloam/loam/database"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func closeDB(t *testing.T, db *database.DB) {
	t.Helper()
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
}
