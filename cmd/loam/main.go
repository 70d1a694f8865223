// Command loam is Loam's tool for operators.
//
//	loam migrate                      brings the database of LOAM_DATABASE_URL to this build's schema
//	loam migrate --sqlite app.db      likewise a file
//	loam migrate --postgres URL       likewise a database of PostgreSQL's
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/openloam/loam/internal/dburl"
	"github.com/openloam/loam/migrations"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		os.Exit(1)
	}
}

func command() *cobra.Command {
	root := &cobra.Command{Use: "loam", Short: "Loam's tool for operators", SilenceUsage: true}
	root.AddCommand(migrateCommand())
	return root
}

func migrateCommand() *cobra.Command {
	var from source
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Bring a database to this build's schema, River's tables included",
		Long: "Bring a database to this build's schema, River's tables included.\n" +
			"It may run while others run it, and again: what is applied stays.\n\n" +
			"Without a flag the database is that of " + dburl.Env + ":\n" + dburl.Allowed + ".\n" +
			"What is on a command line, others see in the list of processes: give a password in " + dburl.Env + " or PGPASSWORD.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			place, err := from.place(cmd)
			if err != nil {
				return err
			}
			db, err := place.Open(cmd.Context())
			if err != nil {
				return err
			}
			defer func() {
				if closeErr := db.Close(); err == nil {
					err = closeErr
				}
			}()
			res, err := migrations.Migrate(cmd.Context(), db, time.Now())
			if err != nil {
				return err
			}
			for _, name := range res.Applied {
				fmt.Fprintln(cmd.OutOrStdout(), "applied", name)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is up to date (%d applied)\n", place, len(res.Applied))
			return nil
		},
	}
	from.flags(cmd)
	return cmd
}
