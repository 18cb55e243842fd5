package deduptest_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/firstseen/firstseen/dedup/deduptest"
)

func Example() {
	t := new(exampleTest) // a *testing.T in a test
	defer t.end()

	db := deduptest.New(t)
	var scopes int
	err := db.Pool.QueryRow(context.Background(), "select count(*) from firstseen.scopes").Scan(&scopes)
	fmt.Println(scopes, err)
	// Output: 0 <nil>
}

// exampleTest is as much of a test as an example needs.
type exampleTest struct {
	testing.TB
	cleanups []func()
}

func (t *exampleTest) Helper() {}

func (t *exampleTest) Cleanup(f func()) { t.cleanups = append([]func(){f}, t.cleanups...) }

func (t *exampleTest) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }

func (t *exampleTest) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func (t *exampleTest) end() {
	for _, f := range t.cleanups {
		f()
	}
}
