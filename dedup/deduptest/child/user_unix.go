//go:build unix

package child

import (
	"io/fs"
	"syscall"
)

func (u *User) credential() *syscall.Credential {
	if u == nil {
		return nil
	}
	return &syscall.Credential{Uid: uint32(u.UID), Gid: uint32(u.GID)}
}

// enters reports whether the directory's mode lets the user pass through it.
func (u *User) enters(dir fs.FileInfo) bool {
	stat, ok := dir.Sys().(*syscall.Stat_t)
	if !ok {
		return true
	}
	switch {
	case int(stat.Uid) == u.UID:
		return dir.Mode()&0o100 != 0
	case int(stat.Gid) == u.GID:
		return dir.Mode()&0o010 != 0
	}
	return dir.Mode()&0o001 != 0
}
