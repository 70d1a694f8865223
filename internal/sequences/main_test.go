package sequences_test

import (
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
	for name, value := range map[string]int{"rapid.checks": n, "rapid.steps": 50} {
		if given[name] {
			continue
		}
		if err := flag.Set(name, strconv.Itoa(value)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
	goleak.VerifyTestMain(m)
}
