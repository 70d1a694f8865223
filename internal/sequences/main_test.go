package sequences_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	flag.Parse()
	n := sequences
	if os.Getenv("LOAM_NIGHTLY") != "" {
		n = nightly
	}
	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	checks := flag.Lookup("rapid.checks")
	if given["rapid.checks"] {
		n, _ = strconv.Atoi(checks.Value.String()) // the flag is a number
	}
	err := checks.Value.Set(strconv.Itoa((n + stagesEach - 1) / stagesEach))
	if !given["rapid.steps"] {
		err = errors.Join(err, flag.Set("rapid.steps", "50"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	goleak.VerifyTestMain(m)
}
