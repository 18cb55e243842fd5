//go:build !unix

package child

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

var errSystem = errors.New("servers for tests start on Unix only: name running ones in the environment")

func attributes(*User, syscall.Signal) *syscall.SysProcAttr { return nil }

func (p *Process) run(_ syscall.Signal, started chan<- error) { started <- errSystem }

func (u *User) enters(fs.FileInfo) bool { return true }

func lock(string) (*os.File, error) { return nil, errSystem }

func tryLock(string) (*os.File, error) { return nil, errSystem }
