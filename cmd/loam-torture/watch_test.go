package main

import (
	"net/url"
	"testing"
	"time"

	"github.com/openloam/loam/database/postgres"
	"github.com/openloam/loam/internal/dbtest"
)

// While the server does not answer the parent, that is noted, once it answers again: then nobody could write.
func TestServerAwayIsNoted(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(dbtest.Server(t))
	if err != nil {
		t.Fatal(err)
	}
	p, err := newProxy(t.Context(), u.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	u.Host = p.addr()
	a := &arena{files: t.TempDir()}
	if a.db, err = postgres.Open(t.Context(), u.String()); err != nil {
		t.Fatal(err)
	}
	defer a.db.Close()
	if a.diary, err = openDiary(a.files, parentDiary); err != nil {
		t.Fatal(err)
	}
	defer a.diary.close()
	noted := func() [][2]int64 {
		ev, err := readEvidence(a.files)
		if err != nil {
			t.Fatal(err)
		}
		return ev.full
	}
	stop := a.watch(t.Context())
	defer stop()
	a.wait(t.Context(), 10*watchEvery)
	if full := noted(); len(full) != 0 {
		t.Errorf("away while it is there: %v", full)
	}
	from := time.Now().UnixNano()
	p.freeze()
	a.wait(t.Context(), 2*watchLimit)
	until := time.Now().UnixNano()
	p.cut()
	p.thaw()
	for limit := time.Now().Add(30 * time.Second); len(noted()) == 0 && time.Now().Before(limit); {
		a.wait(t.Context(), watchEvery)
	}
	if full := noted(); len(full) != 1 || full[0][0] > from || full[0][1] < until {
		t.Errorf("it was away from %d to %d, noted are %v", from, until, full)
	}
}
