package outbox_test

import "os"

// backlog is how many rows a relay finds after an outage: half a million by night.
func backlog() int {
	if os.Getenv("LOAM_NIGHTLY") != "" {
		return 500_000
	}
	return 5_000
}
