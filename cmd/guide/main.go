// Command guide is the program of docs/GUIDE.md: a consumer as many have written it, the same on firstseen, and what
// it takes to try both. KAFKA and POSTGRES in the environment are a broker's address and a connection string.
//
//	guide setup                          make the topic payments and the tables
//	guide produce FIRST LAST [ACCOUNT]   send the payments p-FIRST to p-LAST, of one euro each
//	guide byhand                         book payments by hand, until a signal comes
//	guide consume                        book payments on firstseen, until a signal comes
//	guide await GROUP                    wait until a group has read the topic, and nothing is parked
//	guide open ACCOUNT                   open an account
//	guide accounts                       print what is on the accounts
//	guide sql FILE                       run the SQL in a file
//	guide query SQL                      print a query's rows
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:])
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "guide:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("usage: guide setup | produce FIRST LAST [ACCOUNT] | " +
	"byhand | consume | await GROUP | open ACCOUNT | accounts | sql FILE | query SQL")

// run does what the command line says, with the servers of the environment.
func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	l, err := openLab(ctx, os.Getenv("KAFKA"), os.Getenv("POSTGRES"))
	if err != nil {
		return err
	}
	defer l.pool.Close()
	switch command, args := args[0], args[1:]; {
	case command == "setup" && len(args) == 0:
		return l.setUp(ctx)
	case command == "produce" && (len(args) == 2 || len(args) == 3):
		return l.produceRange(ctx, args)
	case command == "byhand" && len(args) == 0:
		return byHand(ctx, l.pool, l.broker)
	case command == "consume" && len(args) == 0:
		return consume(ctx, l.pool, l.broker)
	case command == "await" && len(args) == 1:
		return l.await(ctx, args[0])
	case command == "open" && len(args) == 1:
		return l.openAccount(ctx, args[0])
	case command == "accounts" && len(args) == 0:
		return l.query(ctx, os.Stdout, `select name, balance from billing.accounts order by name`)
	case command == "sql" && len(args) == 1:
		return l.runSQL(ctx, args[0])
	case command == "query" && len(args) == 1:
		return l.query(ctx, os.Stdout, args[0])
	}
	return errUsage
}

func (l *lab) produceRange(ctx context.Context, args []string) error {
	first, err := strconv.Atoi(args[0])
	if err != nil {
		return errUsage
	}
	last, err := strconv.Atoi(args[1])
	if err != nil {
		return errUsage
	}
	account := ""
	if len(args) == 3 {
		account = args[2]
	}
	return l.produce(ctx, first, last, account)
}
