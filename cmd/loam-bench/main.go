// Command loam-bench measures Loam on a database of its own, which it makes and takes away again.
//
//	loam-bench latency -database sqlite
//	loam-bench latency -database postgres -url postgres://USER@HOST/DATABASE
//	loam-bench throughput -database sqlite
package main

import (
	"context"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := command()
	root.SetArgs(twoDashes(os.Args[1:]))
	if err := root.ExecuteContext(ctx); err != nil {
		os.Exit(1)
	}
}

func command() *cobra.Command {
	root := &cobra.Command{Use: "loam-bench", Short: "Measure Loam on a fresh database", SilenceUsage: true}
	root.AddCommand(latencyCommand(), throughputCommand())
	return root
}

// twoDashes makes -flag, as Go's own commands have it, --flag.
func twoDashes(args []string) []string {
	out := make([]string, len(args))
	for i, arg := range args {
		if len(arg) > 2 && arg[0] == '-' && arg[1] != '-' && strings.ContainsAny(arg[1:2], "abcdefghijklmnopqrstuvwxyz") {
			arg = "-" + arg
		}
		out[i] = arg
	}
	return out
}
