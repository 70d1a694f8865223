package ledger_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/openloam/loam/database/sqlite"
	"github.com/openloam/loam/ledger"
	"github.com/openloam/loam/migrations"
)

// A webhook is told of a payment, and told again because its answer was lost. The mark and the balance are written in one
// transaction, so the payment counts once.
func ExampleOnce() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "once-")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	db, err := sqlite.Open(ctx, filepath.Join(dir, "app.db"))
	if err != nil {
		panic(err)
	}
	defer func() { _ = db.Close() }()
	if _, err := migrations.Migrate(ctx, db, time.Now()); err != nil { // an application calls Engine.Migrate
		panic(err)
	}
	if _, err := db.Write().ExecContext(ctx, `CREATE TABLE balance (cents INTEGER); INSERT INTO balance VALUES (0)`); err != nil {
		panic(err)
	}

	webhook := func(eventID string, cents int) {
		err := db.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			ran, err := ledger.Once(ctx, tx, "acme", eventID, "balance.credit", func(ctx context.Context) error {
				_, err := tx.ExecContext(ctx, `UPDATE balance SET cents = cents + $1`, cents)
				return err
			})
			if err == nil && !ran {
				fmt.Println(eventID, "was here before")
			}
			return err // rolls back, and the event can come again
		})
		if err != nil {
			fmt.Println("ask for it again:", err)
		}
	}
	webhook("payment-1", 500)
	webhook("payment-2", 250)
	webhook("payment-1", 500)

	var cents int
	if err := db.Read().QueryRowContext(ctx, `SELECT cents FROM balance`).Scan(&cents); err != nil {
		panic(err)
	}
	fmt.Println(cents, "cents")
	// Output:
	// payment-1 was here before
	// 750 cents
}
