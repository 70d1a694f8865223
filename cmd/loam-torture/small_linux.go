package main

import (
	"fmt"
	"syscall"
)

// roomy is the size of the file system when it is not full: more than half an hour needs. Memory is taken as it is used.
const roomy = 4 << 30

// mountSmall mounts a file system in memory whose size can be changed. Only root may.
func mountSmall(dir string) error {
	return syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", roomy))
}

func resizeSmall(dir string, size int64) error {
	return syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, fmt.Sprintf("size=%d", size))
}

// usedSmall is how many bytes are used.
func usedSmall(dir string) (int64, error) {
	var s syscall.Statfs_t
	err := syscall.Statfs(dir, &s)
	return int64(s.Blocks-s.Bfree) * s.Bsize, err //nolint:gosec // a few gigabytes
}

func unmountSmall(dir string) error { return syscall.Unmount(dir, 0) }
