package migrations_test

import (
	"crypto/rand"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/openloam/loam/database"
	"github.com/openloam/loam/database/postgres"
	"github.com/openloam/loam/internal/dbtest"
	"github.com/openloam/loam/internal/rig"
	"github.com/openloam/loam/migrations"
)

// On PostgreSQL a role that may read and write the tables, and make none, finds all applied.
//
// contract: M-01
func TestMigrateAsARoleThatMakesNoTables(t *testing.T) {
	t.Parallel()
	place := dbtest.Fresh(t, database.PostgreSQL)
	owner, _ := dbtest.OpenPlace(t, place)
	role := "loam_app_" + strings.ToLower(rand.Text())
	rig.Exec(t, owner, `CREATE ROLE `+role+` LOGIN`)
	t.Cleanup(func() { rig.Exec(t, owner, `DROP OWNED BY `+role+`; DROP ROLE `+role) })
	rig.Exec(t, owner, `REVOKE ALL ON SCHEMA public FROM PUBLIC; GRANT USAGE ON SCHEMA public TO `+role+`;
		GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO `+role)
	u, err := url.Parse(place.At)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(role)
	db, err := postgres.Open(t.Context(), u.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	res, err := migrations.Migrate(t.Context(), db, time.Now())
	if err != nil || len(res.Applied) != 0 {
		t.Errorf("it applied %v: %v", res.Applied, err)
	}
}
