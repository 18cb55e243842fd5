package child

import "syscall"

const sharedMemory = "/dev/shm"

// leastMemory must be free there, in bytes.
const leastMemory = 4 << 30

// memoryDir is a directory whose files are in memory; empty: there is none with room.
func memoryDir() string {
	var fs syscall.Statfs_t
	if syscall.Statfs(sharedMemory, &fs) != nil ||
		fs.Bavail*uint64(fs.Bsize) < leastMemory || //nolint:gosec // a size
		syscall.Access(sharedMemory, 2) != nil {
		return ""
	}
	return sharedMemory
}
