// Package jobs is River: the client that inserts wake-ups, the workers that deliver, and the periodic sweep. It is the only
// package that knows River.
//
// A wake-up carries a tenant and the ids of deliveries and nothing else. What is to be done with them, and when to try
// again, is in the rows; River's own retries serve only when the database could not be read or written.
package jobs
