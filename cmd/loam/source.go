package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/openloam/loam/internal/dburl"
)

const (
	sqliteFlag   = "sqlite"
	postgresFlag = "postgres"
)

// source says which database a command works on.
type source struct{ file, url string }

func (s *source) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.file, sqliteFlag, "", "the SQLite database `file`; it is created if it is missing")
	cmd.Flags().StringVar(&s.url, postgresFlag, "", "the `URL` of a PostgreSQL database, which must exist: postgres://USER@HOST:PORT/DATABASE")
	cmd.MarkFlagsMutuallyExclusive(sqliteFlag, postgresFlag)
}

// place is that of the flag that was given, else that of the environment.
func (s *source) place(cmd *cobra.Command) (dburl.Place, error) {
	switch {
	case cmd.Flags().Changed(sqliteFlag):
		return dburl.SQLite(s.file), nil
	case cmd.Flags().Changed(postgresFlag):
		p, err := dburl.PostgreSQL(s.url)
		if err != nil {
			return p, fmt.Errorf("--%s: %w", postgresFlag, err)
		}
		return p, nil
	}
	p, err := dburl.FromEnv()
	if err != nil {
		return p, fmt.Errorf("%w; or give --%s FILE or --%s URL", err, sqliteFlag, postgresFlag)
	}
	return p, nil
}
