package child

import (
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
)

// User is who a child runs as. A nil *User is this process' own user.
type User struct {
	Name     string
	UID, GID int
}

// Unprivileged is who a server that refuses root runs as: nil, this process' user, unless that is root;
// then the user postgres or nobody, or 65534 where the system knows neither.
func Unprivileged() *User {
	if os.Getuid() != 0 {
		return nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		if u, err := lookup(name); err == nil {
			return u
		}
	}
	return &User{Name: "65534", UID: 65534, GID: 65534}
}

func lookup(name string) (*User, error) {
	entry, err := user.Lookup(name)
	if err != nil {
		return nil, err
	}
	uid, err := strconv.Atoi(entry.Uid)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.Atoi(entry.Gid)
	if err != nil {
		return nil, err
	}
	return &User{Name: name, UID: uid, GID: gid}, nil
}

// Own makes the user the owner of a directory and all that is in it.
func (u *User) Own(dir string) error {
	if u == nil {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, u.UID, u.GID)
	})
}

// CanEnter reports as an error which directory on the way to path is closed to the user.
func (u *User) CanEnter(path string) error {
	if u == nil {
		return nil
	}
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if !u.enters(info) {
			return fmt.Errorf("%s is closed to user %s, which a server started by root runs as", dir, u.Name)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}
