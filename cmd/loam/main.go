// Command loam is Loam's tool for operators.
//
//	loam migrate --sqlite app.db    brings a database to this build's schema
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/openloam/loam/database/sqlite"
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
	var file string
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Bring a database to this build's schema, River's tables included",
		Long: "Bring a database to this build's schema, River's tables included.\n" +
			"It may run while others run it, and again: what is applied stays.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			db, err := sqlite.Open(cmd.Context(), file)
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
			fmt.Fprintf(cmd.OutOrStdout(), "%s is up to date (%d applied)\n", file, len(res.Applied))
			return nil
		},
	}
	cmd.Flags().StringVar(&file, "sqlite", "", "the SQLite database `file`; it is created if it is missing")
	_ = cmd.MarkFlagRequired("sqlite")
	return cmd
}
