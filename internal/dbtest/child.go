package dbtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
)

var childDir string

// ChildProgram is the file of a program for the child processes of a test: this test binary, or one built of the same tests
// without the race detector if this one has it. Under the detector SQLite, which is C translated to Go, is some thirty times
// slower: too slow for a lease of a second.
var ChildProgram = sync.OnceValues(func() (string, error) {
	info, ok := debug.ReadBuildInfo()
	if !ok || !slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		return os.Executable()
	}
	var err error
	if childDir, err = os.MkdirTemp("", "loam-child-"); err != nil {
		return "", err
	}
	file := filepath.Join(childDir, "child.test")
	build := exec.Command("go", "test", "-race=false", "-c", "-o", file, ".") //nolint:gosec // the file is ours
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the children's program: %w\n%s", err, out)
	}
	return file, nil
})

// RemoveChildProgram removes what ChildProgram has built. It is for the end of TestMain.
func RemoveChildProgram() { _ = os.RemoveAll(childDir) }
